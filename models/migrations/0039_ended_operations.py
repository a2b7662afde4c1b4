"""Operations that ended long ago are removed. What waits for one ends before that; to look for it
the database would read all rows, for each."""

SCHEMA = """
ALTER TABLE operations DROP CONSTRAINT operations_after_id_fkey;
CREATE INDEX operations_ended ON operations (finished_at) WHERE finished_at IS NOT NULL;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add what finds them."""
    db.execute_sql(SCHEMA)
