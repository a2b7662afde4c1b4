"""A port range of the agents' own, and when a node last found its packet policy changed."""

SCHEMA = """
ALTER TABLE nodes ADD COLUMN agent_port_low integer;
ALTER TABLE nodes ADD COLUMN agent_port_high integer;
ALTER TABLE nodes ADD COLUMN policy_restored_at timestamptz;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the columns."""
    db.execute_sql(SCHEMA)
