"""Operations that wait for a guest are parked rows, and owners share a node's lanes."""

SCHEMA = """
ALTER TABLE operations
    ADD COLUMN owner_id text,
    ADD COLUMN lane text,
    ADD COLUMN due_at timestamptz,
    ADD COLUMN waits_for text,
    ADD COLUMN wait_since timestamptz,
    ADD COLUMN readiness_port integer,
    ADD COLUMN ends_listener boolean NOT NULL DEFAULT false;
UPDATE operations SET owner_id = sandboxes.owner_id,
    lane = CASE operations.kind WHEN 'stop' THEN 'ctl' WHEN 'archive' THEN 'archive'
        ELSE 'ops' END
    FROM sandboxes WHERE sandboxes.id = sandbox_id;
UPDATE operations SET lane = 'archive' FROM snapshots
    WHERE operations.kind = 'boot' AND snapshots.id = operations.snapshot_id
      AND snapshots.kind = 'files_only';
ALTER TABLE operations ALTER COLUMN owner_id SET NOT NULL, ALTER COLUMN lane SET NOT NULL;
CREATE INDEX operations_lane ON operations (node_id, lane, state)
    WHERE state IN ('pending', 'running');
CREATE INDEX operations_open_of_owner ON operations (owner_id)
    WHERE state IN ('waiting', 'pending', 'running');
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the columns, and fill owner and lane."""
    db.execute_sql(SCHEMA)
