"""Deletion of snapshots, images in the object store and who needs them, and what occupies the disks of nodes."""

SCHEMA = """
ALTER TABLE snapshots DROP CONSTRAINT snapshots_state_check;
ALTER TABLE snapshots ADD CONSTRAINT snapshots_state_check
    CHECK (state IN ('pending', 'ready', 'failed', 'deleting', 'deleted'));
ALTER TABLE snapshots ADD COLUMN upload_attempts integer NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN upload_error text;
ALTER TABLE snapshots ADD COLUMN image_key text;
ALTER TABLE snapshots ADD COLUMN delete_due_at timestamptz;
CREATE INDEX snapshots_deleting ON snapshots (delete_due_at) WHERE state = 'deleting';
CREATE INDEX snapshots_age ON snapshots (created_at) WHERE state = 'ready' AND NOT transient;
CREATE INDEX snapshots_owner ON snapshots (owner_id, created_at);
CREATE INDEX snapshots_image ON snapshots (image_key) WHERE state IN ('ready', 'deleting');
CREATE INDEX operations_snapshot ON operations (snapshot_id) WHERE state IN ('waiting', 'pending', 'running');
CREATE TABLE store_images (
    key text PRIMARY KEY,
    size_bytes bigint NOT NULL,
    used_at timestamptz NOT NULL,
    removing boolean NOT NULL
);
CREATE TABLE disk_uses (
    node_id text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('sandbox', 'snapshot', 'node')),
    resource_id text NOT NULL,
    size_bytes bigint NOT NULL,
    sampled_at timestamptz NOT NULL,
    PRIMARY KEY (node_id, kind, resource_id)
);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add what retention keeps."""
    db.execute_sql(SCHEMA)
