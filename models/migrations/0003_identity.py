"""Sessions on the server, sign-in throttles that all identity processes share, and which key signed a service token."""

SCHEMA = """
CREATE TABLE sessions (
    id_hash text PRIMARY KEY,
    user_id text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    password_print text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);
CREATE TABLE login_throttles (
    subject text PRIMARY KEY,
    full_at timestamptz NOT NULL
);
CREATE INDEX login_throttles_full ON login_throttles (full_at);
ALTER TABLE service_tokens ADD COLUMN kid text NOT NULL DEFAULT '';
CREATE INDEX service_tokens_revoked ON service_tokens (expires_at) WHERE revoked_at IS NOT NULL;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Create what identity keeps beyond accounts and keys."""
    db.execute_sql(SCHEMA)
