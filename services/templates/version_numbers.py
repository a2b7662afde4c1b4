"""The number that a version of a template gets which is published without one."""
from models.database import database
from models.users import User

# One more than the highest whole number ever given, deleted ones included. Numbers of more than six
# digits (a date with its time) are versions too, but not counted on from, so that some may be taken
# already where the count has come there: of as many numbers as there are versions, and one, one is
# free.
_NEXT = """
WITH given AS (
    SELECT version FROM templates WHERE coalesce(owner_id, '') = %s AND name = %s
), known AS (
    SELECT coalesce(max(version::integer) FILTER (WHERE version ~ '^[0-9]{1,6}$'), 0) AS highest,
        count(*) AS versions FROM given
)
SELECT min(number) FROM known, generate_series(highest + 1, highest + 1 + versions) AS number
WHERE number::text NOT IN (SELECT version FROM given)
"""


def next_version(namespace: User | None, name: str) -> str:
    """The next number of a name, in the transaction that has its lock."""
    owner = "" if namespace is None else namespace.id
    return str(database.execute_sql(_NEXT, (owner, name)).fetchone()[0])
