"""Advisory locks against a real Postgres: each guards its own work and none of the others'."""
import psycopg2
import pytest

from models import locks
from models.database import connection, database
from models.locks import Lock, LockClass
from services.metering import totals

pytestmark = pytest.mark.usefixtures("fresh_rows")


@pytest.fixture
def other(postgres_url):
    """Another process's connection, in a transaction."""
    link = psycopg2.connect(postgres_url)
    yield link.cursor()
    link.rollback()  # else the server keeps the locks for a moment after it has closed
    link.close()


def hold(cursor, *numbers):
    marks = ", ".join(["%s"] * len(numbers))
    cursor.execute(f"SELECT pg_advisory_xact_lock({marks})", [int(number) for number in numbers])


def test_tallies_are_summed_up_while_webhooks_are_swept(other):
    with connection():
        for _ in range(3):
            database.execute_sql("INSERT INTO sandbox_tallies (owner_id, kind, status, sandboxes)"
                                 " VALUES ('nobody', 'project', 'running', 1)")
    hold(other, Lock.WEBHOOK_SWEEP)
    totals.sum_up()
    with connection():
        found = database.execute_sql(
            "SELECT sandboxes, is_sum FROM sandbox_tallies WHERE owner_id = 'nobody'")
        assert found.fetchall() == [(3, True)]


@pytest.mark.parametrize("taken", Lock)
def test_a_lock_that_is_taken_is_refused_and_every_other_is_given(other, taken):
    hold(other, taken)
    for wanted in Lock:
        with connection(), database.atomic():
            assert locks.try_for_transaction(wanted) is (wanted is not taken)


def test_texts_of_two_classes_do_not_meet(other):
    other.execute("SELECT pg_advisory_xact_lock(%s, hashtext('alice/web'))",
                  (int(LockClass.TEMPLATE_NAME), ))
    with connection(), database.atomic():
        database.execute_sql("SET LOCAL lock_timeout = '1s'")
        locks.take_for_transaction(LockClass.EVENT_SUBJECT, "alice/web")


def test_a_lock_held_in_a_block_is_free_after_it(other):
    with connection(), locks.holding(Lock.MIGRATIONS):
        other.execute("SELECT pg_try_advisory_xact_lock(%s)", (int(Lock.MIGRATIONS),))
        assert other.fetchone() == (False,)
    hold(other, Lock.MIGRATIONS)
