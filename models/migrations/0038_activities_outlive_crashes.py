"""What holds sandboxes awake outlives a crash of the server: an open shell whose activity was gone
with it would be put to sleep under its user's hands. Its statements do not wait for the disk."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Have the server log the table, and its sequence with it, so that numbers do not come twice."""
    db.execute_sql("ALTER TABLE activities SET LOGGED")
