"""Indexes for what nodes and placement ask of a large table: the rows that are awake or about to
change, the ids of all that are not stopped, from the index alone, and the snapshots it keeps."""

# One that is asleep or stopped, with nothing under way, is none of sandboxes_active: claims on a
# node and each tick of its reconciler read these rows, and there are few of them.
SCHEMA = """
CREATE INDEX sandboxes_active ON sandboxes (node_id)
    WHERE task IS NOT NULL OR status NOT IN ('hibernated', 'stopped');
DROP INDEX sandboxes_node;
CREATE INDEX sandboxes_node ON sandboxes (node_id, id) WHERE status <> 'stopped';
DROP INDEX snapshots_node;
CREATE INDEX snapshots_node ON snapshots (node_id) WHERE state IN ('pending', 'ready', 'deleting');
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add one index, widen two."""
    db.execute_sql(SCHEMA)
