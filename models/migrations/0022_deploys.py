"""Apps, the runs that publish versions of them, and what the object store holds of those."""

SCHEMA = """
CREATE TABLE deploys (
    slug text PRIMARY KEY,
    app_id text NOT NULL UNIQUE,
    owner_id text NOT NULL REFERENCES users(id),
    status text NOT NULL,
    next_version integer NOT NULL,
    live_version integer,
    live_epoch integer,
    live_static boolean,
    previous_version integer,
    previous_epoch integer,
    collect_previous_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX deploys_by_owner ON deploys (owner_id, created_at);
CREATE INDEX deploys_to_collect ON deploys (collect_previous_at)
    WHERE collect_previous_at IS NOT NULL;
CREATE TABLE deploy_runs (
    id bigserial PRIMARY KEY,
    slug text NOT NULL,
    app_id text NOT NULL,
    owner_id text NOT NULL,
    version integer NOT NULL,
    run_id text NOT NULL,
    deploy_intent_id text,
    snapshot_id text NOT NULL,
    state text NOT NULL,
    step text NOT NULL,
    node_id text NOT NULL,
    epoch integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    claimed_by text,
    lease_until timestamptz,
    announce_at timestamptz,
    deadline_at timestamptz NOT NULL,
    builder_sandbox_id text,
    manifest jsonb,
    stored_epoch integer,
    error text,
    operator_error text,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    UNIQUE (app_id, version)
);
-- One open run for each app: the second of two at once is refused here, whoever comes first.
CREATE UNIQUE INDEX deploy_runs_open ON deploy_runs (slug) WHERE state IN ('queued', 'running');
CREATE INDEX deploy_runs_due ON deploy_runs (announce_at) WHERE announce_at IS NOT NULL;
CREATE TABLE deploy_logs (
    run bigint NOT NULL REFERENCES deploy_runs(id) ON DELETE CASCADE,
    start_byte bigint NOT NULL,
    bytes integer NOT NULL,
    content text NOT NULL,
    PRIMARY KEY (run, start_byte)
);
CREATE TABLE deploy_prefixes (
    prefix text PRIMARY KEY,
    app_id text NOT NULL,
    version integer NOT NULL,
    due_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL
);
CREATE INDEX deploy_prefixes_due ON deploy_prefixes (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE edges (
    id text PRIMARY KEY,
    heartbeat_at timestamptz NOT NULL
);
CREATE TABLE staged_versions (
    edge_id text NOT NULL REFERENCES edges(id) ON DELETE CASCADE,
    prefix text NOT NULL,
    PRIMARY KEY (edge_id, prefix)
);
-- Whom builders belong to. Nobody can sign in as it, or act for it.
INSERT INTO users (id, email, password_hash, plan, created_at, disabled_at)
VALUES ('svc-deploys', 'svc-deploys', '!', 'free', now(), now());
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the tables."""
    db.execute_sql(SCHEMA)
