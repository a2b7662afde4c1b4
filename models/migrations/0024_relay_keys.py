"""Keys with which a guest reaches one prefix of the object store through the guest gateway."""

SCHEMA = """
CREATE TABLE relay_keys (
    key_id text PRIMARY KEY,
    sandbox_id text NOT NULL UNIQUE REFERENCES sandboxes(id) ON DELETE CASCADE,
    prefix text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL
);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Create the table."""
    db.execute_sql(SCHEMA)
