"""Which lanes of a node have started and live; null where a node does not tell."""

SCHEMA = """
ALTER TABLE nodes ADD COLUMN lanes jsonb;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the column."""
    db.execute_sql(SCHEMA)
