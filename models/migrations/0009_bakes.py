"""Templates wanted and baked on each node; what an operator should know of an operation, and who asked for it."""

SCHEMA = """
CREATE TABLE bakes (
    node_id text NOT NULL REFERENCES nodes,
    vcpus integer NOT NULL,
    mem_mb integer NOT NULL,
    state text NOT NULL CHECK (state IN ('queued', 'baking', 'baked', 'failed')),
    phase text NOT NULL,
    phase_at timestamptz NOT NULL,
    attempts integer NOT NULL,
    host_tuple jsonb NOT NULL,
    announce_at timestamptz,
    error text,
    wanted_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (node_id, vcpus, mem_mb)
);
CREATE INDEX bakes_due ON bakes (announce_at) WHERE state IN ('queued', 'failed');
ALTER TABLE operations ADD COLUMN note text;
ALTER TABLE operations ADD COLUMN requested_by text;
CREATE INDEX operations_failed ON operations (id) WHERE state = 'failed';
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the bakes, and notes and requesters of operations."""
    db.execute_sql(SCHEMA)
