"""Requests in flight: which sandboxes are to get none any more, and what the edges say about them;
and names of apps besides their slugs."""

SCHEMA = """
CREATE TABLE gateways (
    id text PRIMARY KEY,
    routes_until timestamptz NOT NULL
);
CREATE TABLE drains (
    id bigserial PRIMARY KEY,
    sandbox_id text NOT NULL UNIQUE,
    until timestamptz NOT NULL
);
CREATE TABLE drained_gateways (
    drain bigint NOT NULL REFERENCES drains(id) ON DELETE CASCADE,
    gateway_id text NOT NULL,
    PRIMARY KEY (drain, gateway_id)
);
CREATE TABLE app_hosts (
    host text PRIMARY KEY,
    app_id text NOT NULL REFERENCES deploys(app_id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL
);
CREATE INDEX app_hosts_by_app ON app_hosts (app_id);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the tables."""
    db.execute_sql(SCHEMA)
