"""When the upload of a snapshot is to be announced (again)."""

SCHEMA = """
ALTER TABLE snapshots ADD COLUMN upload_due_at timestamptz;
CREATE INDEX snapshots_upload_due ON snapshots (upload_due_at) WHERE state = 'ready' AND NOT uploaded_to_store;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the due time of uploads."""
    db.execute_sql(SCHEMA)
