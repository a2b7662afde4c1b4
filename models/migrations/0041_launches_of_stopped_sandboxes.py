"""What starts a stopped sandbox goes with it, or with the last of its snapshots that may be forked.

Agent servers and start commands that nothing needs any more are removed; but the command of a
preset's web UI stays, by which it is shown.
"""

SCHEMA = """
CREATE INDEX snapshots_source ON snapshots (source_sandbox_id) WHERE state IN ('pending', 'ready');
WITH ended AS (
    SELECT id FROM sandboxes WHERE status = 'stopped' AND NOT EXISTS (
        SELECT FROM snapshots
        WHERE source_sandbox_id = sandboxes.id AND snapshots.state IN ('pending', 'ready'))
), forgotten AS (
    DELETE FROM agent_servers WHERE sandbox_id IN (SELECT id FROM ended)
)
UPDATE sandboxes SET start_command = NULL FROM ended
    WHERE sandboxes.id = ended.id AND start_command <> '/opt/svc/presets/lfg/start';
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add what finds the snapshots of a sandbox, and remove what was kept."""
    db.execute_sql(SCHEMA)
