"""Sandboxes that serve their app no more and are to be stopped."""

SCHEMA = """
CREATE TABLE retired_runtimes (
    sandbox_id text PRIMARY KEY REFERENCES sandboxes(id) ON DELETE CASCADE,
    stop_at timestamptz NOT NULL
);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the table."""
    db.execute_sql(SCHEMA)
