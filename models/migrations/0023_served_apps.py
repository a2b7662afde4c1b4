"""Apps that a sandbox serves: which one, how long requests are held, and what a run brings up."""

SCHEMA = """
ALTER TABLE deploys ADD COLUMN live_sandbox_id text REFERENCES sandboxes(id);
ALTER TABLE deploys ADD COLUMN fence_until timestamptz;
ALTER TABLE deploy_runs ADD COLUMN runtime_sandbox_id text;
ALTER TABLE deploy_runs ADD COLUMN restores_version integer;
CREATE INDEX deploys_by_live_sandbox ON deploys (live_sandbox_id)
    WHERE live_sandbox_id IS NOT NULL;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the columns."""
    db.execute_sql(SCHEMA)
