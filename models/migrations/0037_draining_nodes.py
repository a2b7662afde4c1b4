"""A node that is being drained is closed until then, whatever the operator has decided."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add a column; no node drains."""
    db.execute_sql("ALTER TABLE nodes ADD COLUMN draining_until timestamptz")
