"""Variables of snapshots are their own, so that a stopped sandbox need not keep any secret."""

SCHEMA = """
ALTER TABLE snapshots ADD COLUMN env jsonb NOT NULL DEFAULT '{}';
UPDATE snapshots SET env = sandboxes.env FROM sandboxes
    WHERE sandboxes.id = snapshots.source_sandbox_id AND snapshots.state IN ('pending', 'ready');
UPDATE sandboxes SET env = '{}', agent_token = '' WHERE status = 'stopped';
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the column, and forget what was kept."""
    db.execute_sql(SCHEMA)
