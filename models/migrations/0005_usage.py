"""What sandboxes use and cost, tallies that answer totals without counting rows, credit, and indexes of the list."""

SCHEMA = """
SET LOCAL statement_timeout = 0;
CREATE TABLE sandbox_usage (
    sandbox_id text PRIMARY KEY REFERENCES sandboxes,
    run text,
    run_cpu_ms bigint NOT NULL,
    run_age_ms bigint NOT NULL,
    cpu_ms bigint NOT NULL,
    wall_clock_ms bigint NOT NULL,
    cost numeric(38) NOT NULL,
    sampled_at timestamptz
) WITH (fillfactor = 70);
CREATE TABLE usage_tallies (
    id bigserial PRIMARY KEY,
    owner_id text NOT NULL,
    month date NOT NULL,
    wall_clock_ms bigint NOT NULL,
    cost numeric(38) NOT NULL,
    is_sum boolean NOT NULL DEFAULT false
);
CREATE INDEX usage_tallies_owner ON usage_tallies (owner_id, month);
CREATE INDEX usage_tallies_fresh ON usage_tallies (owner_id, month) WHERE NOT is_sum;
CREATE TABLE sandbox_tallies (
    id bigserial PRIMARY KEY,
    owner_id text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    sandboxes bigint NOT NULL,
    is_sum boolean NOT NULL DEFAULT false
);
CREATE INDEX sandbox_tallies_owner ON sandbox_tallies (owner_id, kind, status);
CREATE INDEX sandbox_tallies_fresh ON sandbox_tallies (owner_id) WHERE NOT is_sum;
CREATE TABLE credit_grants (
    id bigserial PRIMARY KEY,
    owner_id text NOT NULL REFERENCES users,
    month date NOT NULL,
    amount numeric(18, 6) NOT NULL CHECK (amount > 0),
    note text NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX credit_grants_owner ON credit_grants (owner_id, month);

CREATE FUNCTION tally_sandbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO sandbox_tallies (owner_id, kind, status, sandboxes)
        VALUES (OLD.owner_id, OLD.kind, OLD.status, -1);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO sandbox_tallies (owner_id, kind, status, sandboxes)
        VALUES (NEW.owner_id, NEW.kind, NEW.status, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER sandboxes_come_and_go AFTER INSERT OR DELETE ON sandboxes
    FOR EACH ROW EXECUTE FUNCTION tally_sandbox();
CREATE TRIGGER sandboxes_change AFTER UPDATE ON sandboxes FOR EACH ROW
    WHEN ((OLD.owner_id, OLD.kind, OLD.status) IS DISTINCT FROM (NEW.owner_id, NEW.kind, NEW.status))
    EXECUTE FUNCTION tally_sandbox();
-- The triggers' lock keeps writers out until the commit, so nothing falls between them and this count.
INSERT INTO sandbox_tallies (owner_id, kind, status, sandboxes, is_sum)
    SELECT owner_id, kind, status, count(*), true FROM sandboxes GROUP BY owner_id, kind, status;

CREATE INDEX sandboxes_owner_live_kind ON sandboxes (owner_id, kind, created_at DESC, id DESC)
    WHERE status <> 'stopped';
ALTER INDEX sandboxes_owner_all RENAME TO sandboxes_owner_status;
CREATE INDEX sandboxes_owner_status_kind ON sandboxes (owner_id, status, kind, created_at DESC, id DESC);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Create what usage, cost, totals and credit need."""
    db.execute_sql(SCHEMA)
