"""Agent servers: what starts them, and the bootstrap with the callback address and its token."""

SCHEMA = """
CREATE TABLE agent_servers (
    sandbox_id text PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    source text,
    bootstrap jsonb
);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the table."""
    db.execute_sql(SCHEMA)
