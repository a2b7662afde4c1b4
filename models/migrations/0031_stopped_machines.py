"""How many machines a node has that stand stopped, for the next wake or create."""

SCHEMA = "ALTER TABLE nodes ADD COLUMN stopped_machines jsonb NOT NULL DEFAULT '{}';"


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add one column; a node that does not tell yet has none."""
    db.execute_sql(SCHEMA)
