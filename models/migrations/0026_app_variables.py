"""Variables of apps: sealed values."""

SCHEMA = """
CREATE TABLE app_variables (
    app_id text NOT NULL REFERENCES deploys(app_id) ON DELETE CASCADE,
    name text NOT NULL,
    secret boolean NOT NULL,
    sealed bytea NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (app_id, name)
);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the table."""
    db.execute_sql(SCHEMA)
