"""What a node tells of its disk, so that a full one takes nothing new."""

SCHEMA = """
ALTER TABLE nodes ADD COLUMN disk_mb integer;
ALTER TABLE nodes ADD COLUMN disk_free_mb integer;
ALTER TABLE nodes ADD COLUMN disk_floor_mb integer NOT NULL DEFAULT 0;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the columns."""
    db.execute_sql(SCHEMA)
