"""Hosts of previews, ports that rest, and when a port was bound."""

SCHEMA = """
CREATE TABLE preview_hosts (
    label text PRIMARY KEY,
    sandbox_id text NOT NULL REFERENCES sandboxes(id),
    guest_port integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (sandbox_id, guest_port)
);
CREATE TABLE resting_ports (
    node_id text NOT NULL,
    host_port integer NOT NULL,
    released_at timestamptz NOT NULL,
    PRIMARY KEY (node_id, host_port)
);
ALTER TABLE port_bindings ADD COLUMN bound_seq bigint NOT NULL DEFAULT 0;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add tables and column."""
    db.execute_sql(SCHEMA)
