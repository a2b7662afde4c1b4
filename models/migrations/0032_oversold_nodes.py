"""What a node may promise beyond its own while its machines idle, and how much of a CPU each of them
used last."""

SCHEMA = """
ALTER TABLE nodes ADD COLUMN cpus integer;
ALTER TABLE nodes ADD COLUMN oversell double precision NOT NULL DEFAULT 1;
ALTER TABLE nodes ADD COLUMN memory_is_scarce boolean NOT NULL DEFAULT false;
ALTER TABLE sandbox_usage ADD COLUMN cpu_permille integer NOT NULL DEFAULT 0;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the columns; a node that does not tell yet promises what it promised."""
    db.execute_sql(SCHEMA)
