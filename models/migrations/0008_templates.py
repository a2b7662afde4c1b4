"""The templates registry: private names and the system catalogue (owner null), each with its versions."""

SCHEMA = """
CREATE TABLE templates (
    id bigserial PRIMARY KEY,
    owner_id text REFERENCES users,
    name text NOT NULL,
    version text NOT NULL,
    snapshot_id text NOT NULL REFERENCES snapshots,
    start_command text,
    readiness_port integer,
    ports jsonb NOT NULL,
    latest boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted_at timestamptz,
    CHECK (NOT latest OR deleted_at IS NULL)
);
CREATE UNIQUE INDEX templates_version ON templates (COALESCE(owner_id, ''), name, version);
CREATE UNIQUE INDEX templates_latest ON templates (COALESCE(owner_id, ''), name) WHERE latest;
CREATE INDEX templates_snapshot ON templates (snapshot_id) WHERE deleted_at IS NULL;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the registry."""
    db.execute_sql(SCHEMA)
