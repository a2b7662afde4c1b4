"""What an operation has waited for is remembered when it waits for something else meanwhile."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add a column; what waits now has waited for nothing else."""
    db.execute_sql("ALTER TABLE operations ADD COLUMN waited jsonb")
