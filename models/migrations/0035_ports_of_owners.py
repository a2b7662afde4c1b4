"""Whose a host port is, while it is bound and while it rests: an owner may hold a share of a node's
ports."""

# A share is counted from the indexes alone.
SCHEMA = """
ALTER TABLE port_bindings ADD COLUMN owner_id text NOT NULL DEFAULT '';
UPDATE port_bindings SET owner_id = sandboxes.owner_id FROM sandboxes
    WHERE sandboxes.id = port_bindings.sandbox_id;
CREATE INDEX port_bindings_owner ON port_bindings (node_id, owner_id, host_port);
ALTER TABLE resting_ports ADD COLUMN owner_id text NOT NULL DEFAULT '';
CREATE INDEX resting_ports_owner ON resting_ports (node_id, owner_id, host_port);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the columns; ports that rest already are nobody's."""
    db.execute_sql(SCHEMA)
