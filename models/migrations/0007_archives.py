"""Where the archive of a `files_only` snapshot lies in the object store."""

SCHEMA = """
ALTER TABLE snapshots ADD COLUMN archive_key text;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the object key of archives."""
    db.execute_sql(SCHEMA)
