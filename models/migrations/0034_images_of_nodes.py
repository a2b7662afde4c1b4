"""Which builds of guest images a node has: a copy of another node's snapshot boots on that very
build."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the column; a node tells with its next heartbeat."""
    db.execute_sql("ALTER TABLE nodes ADD COLUMN images jsonb NOT NULL DEFAULT '[]'")
