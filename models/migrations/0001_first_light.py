"""Users, keys, nodes, sandboxes, snapshots, operations, outbox and idempotency keys."""

SCHEMA = """
CREATE TABLE users (
    id text PRIMARY KEY,
    email text NOT NULL UNIQUE,
    password_hash text NOT NULL,
    plan text NOT NULL,
    created_at timestamptz NOT NULL,
    disabled_at timestamptz
);
CREATE TABLE api_keys (
    id text PRIMARY KEY,
    owner_id text NOT NULL REFERENCES users,
    name text NOT NULL,
    key_hash text NOT NULL UNIQUE,
    prefix text NOT NULL,
    scopes jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz,
    expires_at timestamptz
);
CREATE INDEX api_keys_owner ON api_keys (owner_id, created_at);
CREATE TABLE service_tokens (
    jti text PRIMARY KEY,
    subject text NOT NULL,
    app_id text NOT NULL,
    issued_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);
CREATE TABLE nodes (
    id text PRIMARY KEY,
    address text NOT NULL,
    vcpus integer NOT NULL,
    mem_mb integer NOT NULL,
    host_port_low integer NOT NULL,
    host_port_high integer NOT NULL,
    host_tuple jsonb NOT NULL,
    accepting boolean NOT NULL,
    started_at timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL
);
CREATE TABLE port_bindings (
    node_id text NOT NULL,
    host_port integer NOT NULL,
    guest_port integer NOT NULL,
    sandbox_id text NOT NULL,
    PRIMARY KEY (node_id, host_port)
);
CREATE INDEX port_bindings_sandbox ON port_bindings (sandbox_id);
CREATE TABLE sandboxes (
    id text PRIMARY KEY,
    owner_id text NOT NULL REFERENCES users,
    node_id text NOT NULL REFERENCES nodes,
    kind text NOT NULL,
    status text NOT NULL CHECK (status IN ('provisioning', 'running', 'hibernated', 'stopped')),
    task text,
    op_seq bigint NOT NULL,
    vcpus integer NOT NULL,
    mem_mb integer NOT NULL,
    cwd text NOT NULL,
    env jsonb NOT NULL,
    vm_ip text NOT NULL,
    agent_port integer NOT NULL,
    agent_token text NOT NULL,
    snapshot_id text,
    start_command text,
    readiness_port integer,
    skip_app_processes boolean NOT NULL,
    preferred_model text NOT NULL,
    git_repository_url text,
    git_ref text,
    session_id text,
    project_id text,
    project_slug text,
    app_id text,
    idle_timeout_s integer NOT NULL,
    last_active_at timestamptz NOT NULL,
    idle_at timestamptz,
    error text,
    operator_note text,
    cold_boots integer NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    stopped_at timestamptz
);
CREATE INDEX sandboxes_owner_live ON sandboxes (owner_id, created_at DESC, id DESC) WHERE status <> 'stopped';
CREATE INDEX sandboxes_owner_all ON sandboxes (owner_id, status, created_at DESC, id DESC);
CREATE INDEX sandboxes_node ON sandboxes (node_id) WHERE status <> 'stopped';
CREATE INDEX sandboxes_idle ON sandboxes (idle_at) WHERE status = 'running' AND task IS NULL;
CREATE UNLOGGED TABLE activities (
    id bigserial PRIMARY KEY,
    sandbox_id text NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX activities_sandbox ON activities (sandbox_id);
CREATE TABLE snapshots (
    id text PRIMARY KEY,
    owner_id text NOT NULL REFERENCES users,
    node_id text NOT NULL REFERENCES nodes,
    source_sandbox_id text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'ready', 'failed', 'deleted')),
    transient boolean NOT NULL,
    vcpus integer NOT NULL,
    mem_mb integer NOT NULL,
    cwd text NOT NULL,
    rootfs_sha text NOT NULL,
    size_bytes bigint NOT NULL,
    tarball_size_bytes bigint NOT NULL,
    uploaded_to_store boolean NOT NULL,
    pause_ms double precision NOT NULL,
    error text,
    created_at timestamptz NOT NULL
);
CREATE INDEX snapshots_node ON snapshots (node_id) WHERE state IN ('pending', 'ready');
CREATE TABLE operations (
    id bigserial PRIMARY KEY,
    sandbox_id text NOT NULL REFERENCES sandboxes,
    op_seq bigint NOT NULL,
    kind text NOT NULL,
    state text NOT NULL CHECK (state IN ('waiting', 'pending', 'running', 'succeeded', 'failed', 'superseded')),
    node_id text NOT NULL,
    snapshot_id text,
    after_id bigint REFERENCES operations,
    attempts integer NOT NULL,
    epoch integer NOT NULL,
    claimed_by text,
    lease_until timestamptz,
    announce_at timestamptz NOT NULL,
    deadline_at timestamptz NOT NULL,
    error text,
    operator_error text,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    UNIQUE (sandbox_id, op_seq)
);
CREATE INDEX operations_open ON operations (state, announce_at) WHERE state IN ('waiting', 'pending', 'running');
CREATE INDEX operations_after ON operations (after_id) WHERE state = 'waiting';
CREATE TABLE outbox (
    id bigserial PRIMARY KEY,
    queue text NOT NULL,
    job text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE TABLE idempotency_keys (
    owner_id text NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    request_hash text NOT NULL,
    resource_id text NOT NULL,
    response jsonb,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (owner_id, route, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Create the first schema."""
    db.execute_sql(SCHEMA)
