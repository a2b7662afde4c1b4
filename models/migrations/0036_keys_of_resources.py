"""The idempotency key of a sandbox or snapshot is found by its id: the answer to a create with a
preset is kept under it, and the key of what could not be made is forgotten."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add an index."""
    db.execute_sql("CREATE INDEX idempotency_keys_resource ON idempotency_keys (resource_id)")
