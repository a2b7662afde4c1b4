"""What a node keeps free on its disk for the memory of machines beyond its own."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the column; a node that does not tell yet keeps all of it free."""
    db.execute_sql("ALTER TABLE nodes ADD COLUMN ram_share double precision NOT NULL DEFAULT 1")
