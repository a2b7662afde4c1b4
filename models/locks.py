"""The advisory locks of the database: their numbers, and the calls that take them; nobody else has
a number of its own.

Postgres knows an advisory lock by one number, or by a class and a number; the two kinds never meet.
Two uses with one number would skip or wait for each other without a word. A number once used here
is never given to another use, since processes of two versions may be at work on one database.
"""
import enum
from collections.abc import Iterator
from contextlib import contextmanager

from models.database import connection, database


@enum.unique
class Lock(enum.IntEnum):
    """Locks of which there is one."""

    MIGRATIONS = 7_382_915_001  # applying migrations: one process at a time, the others wait
    # bringing the deliveries up to date: a tick that finds it taken does nothing
    WEBHOOK_SWEEP = 7_382_915_002
    TALLIES = 7_382_915_003  # replacing tallies by their sums: who finds it taken does nothing
    # the same for the tallies of the LLM proxy
    LLM_TALLIES = 7_382_915_004


@enum.unique
class LockClass(enum.IntEnum):
    """Classes of locks, with one for each text: the second number is the text's hash."""

    # recording events of one subject: one at a time, so that their times are in order
    EVENT_SUBJECT = 73829
    # publishing under one name: one at a time, so that versions have no gaps or twins
    TEMPLATE_NAME = 73830
    # claiming operations of one lane of one node: one at a time, so that owners get fair shares
    LANE = 73831
    # beginning LLM calls of one owner: one at a time, so that none is counted against less than all
    LLM_OWNER = 73832


@contextmanager
def holding(lock: Lock) -> Iterator[None]:
    """Wait for the lock and hold it in the block, on this connection."""
    database.execute_sql("SELECT pg_advisory_lock(%s)", (int(lock),))
    try:
        yield
    finally:
        database.execute_sql("SELECT pg_advisory_unlock(%s)", (int(lock),))


def try_for_transaction(lock: Lock) -> bool:
    """Take the lock until the transaction ends; False if another has it."""
    return bool(
        database.execute_sql("SELECT pg_try_advisory_xact_lock(%s)", (int(lock), )).fetchone()[0])


def execute_in_batches(lock: Lock, statement: str, most: int) -> None:
    """Execute a statement that deals with `most` of what is due and says of how many it was, until
    these are fewer; each time in a transaction of its own, which holds the lock. Who finds that
    taken does nothing."""
    number = most
    while number >= most:
        with connection(), database.atomic():
            if not try_for_transaction(lock):
                return
            number = database.execute_sql(statement).fetchone()[0]


def take_for_transaction(lock_class: LockClass, text: str) -> None:
    """Wait for the lock of `text` and hold it until the transaction ends."""
    database.execute_sql("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (int(lock_class), text))
