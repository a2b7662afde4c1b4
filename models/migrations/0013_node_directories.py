"""Which directory a node writes to, so that it notices when its disk is not mounted."""

SCHEMA = """
ALTER TABLE nodes ADD COLUMN directory_id text;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the column."""
    db.execute_sql(SCHEMA)
