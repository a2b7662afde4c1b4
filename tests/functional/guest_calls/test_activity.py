"""The end of a call on the data road never spoils its result: an activity that cannot be ended
expires."""
import contextlib
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import pytest

from models.database import connection, database, now
from models.sandboxes import Activity, Sandbox
from services.guest_calls.use_while_running import begin, finish, in_use, renew
from tests.stack.database import set_back


@pytest.fixture
def sandbox(running_id):
    with connection():
        return Sandbox.get_by_id(running_id)


@contextlib.contextmanager
def database_away(edge):
    """Cut every connection and let no new one in, until the block ends."""
    url = urlsplit(edge.settings.database_url)
    name = url.path.lstrip("/")
    outside = psycopg2.connect(urlunsplit(url._replace(path="/svc")))
    outside.autocommit = True
    try:
        with outside.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s",
                (name, ))
            try:
                yield
            finally:
                cursor.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    finally:
        outside.close()
        database.close_idle()


def activities(sandbox):
    with connection():
        return Activity.select().where(Activity.sandbox_id == sandbox.id).count()


@pytest.mark.slow
def test_a_result_survives_the_database_going_away(edge, sandbox):
    with contextlib.ExitStack() as away:
        with in_use(sandbox, for_s=30, what="exec"):
            assert activities(sandbox) == 1
            away.enter_context(database_away(edge))
            result = "done"
        assert result == "done"
    assert activities(sandbox) == 1, "it was not ended and expires by itself"


def test_an_error_of_the_call_itself_is_the_one_that_is_seen(edge, sandbox):
    with contextlib.ExitStack() as away, pytest.raises(KeyError), in_use(
            sandbox, for_s=30, what="exec"):
        away.enter_context(database_away(edge))
        raise KeyError


def test_normally_it_is_ended(edge, sandbox):
    with in_use(sandbox, for_s=30, what="exec"):
        assert activities(sandbox) == 1
    assert activities(sandbox) == 0


def test_an_activity_is_renewed_and_restarts_the_idle_clock(sandbox):
    with in_use(sandbox, for_s=30, what="a shell") as activity_id:
        before, expired = read(sandbox, activity_id)
        renew({activity_id: sandbox.id}, for_s=90)
        after, renewed = read(sandbox, activity_id)
        assert renewed > expired + timedelta(seconds=50)
        assert after.idle_at > before.idle_at and after.last_active_at > before.last_active_at
        lasts = after.idle_at - after.last_active_at
        assert lasts == timedelta(seconds=sandbox.idle_timeout_s)


def test_a_locked_row_is_not_waited_for_and_stays_awake_all_the_same(edge, sandbox):
    other = psycopg2.connect(edge.settings.database_url)
    try:
        with in_use(sandbox, for_s=30, what="a shell") as activity_id, other.cursor() as cursor:
            _, expired = read(sandbox, activity_id)
            cursor.execute("SELECT 1 FROM sandboxes WHERE id = %s FOR UPDATE", (sandbox.id,))
            renew({activity_id: sandbox.id}, for_s=90)
            assert read(sandbox, activity_id)[1] > expired
            other.rollback()
    finally:
        other.close()


def test_an_activity_that_is_gone_is_made_again(sandbox):
    """It expired while the database was away, or the server lost its last moments in a crash."""
    with in_use(sandbox, for_s=30, what="a shell") as activity_id:
        with connection():
            Activity.delete().where(Activity.sandbox_id == sandbox.id).execute()
        renew({activity_id: sandbox.id}, for_s=90)
        assert activities(sandbox) == 1
    assert activities(sandbox) == 0


def test_a_number_that_is_another_sandboxs_by_now_is_neither_renewed_nor_ended(sandbox):
    with in_use(sandbox, for_s=30, what="exec") as activity_id:
        _, expires_at = read(sandbox, activity_id)
        renew({activity_id: "another"}, for_s=90)
        finish("another", activity_id, now())
        assert read(sandbox, activity_id)[1] == expires_at


def test_a_number_that_the_database_has_forgotten_in_a_crash_is_not_given_again(sandbox):
    set_back("activities")
    shell = begin(sandbox, 30, "a shell")
    with connection():
        Activity.delete_by_id(shell)
    set_back("activities")
    renew({shell: sandbox.id}, for_s=90)
    command = begin(sandbox, 30, "exec")
    assert activities(sandbox) == 2
    finish(sandbox.id, command, now())
    assert activities(sandbox) == 1 and read(sandbox, shell)
    finish(sandbox.id, shell, now())
    assert activities(sandbox) == 0


def test_activities_outlive_a_crash_of_the_server(edge):
    with connection():
        kinds = database.execute_sql("SELECT relpersistence::text FROM pg_class"
                                     " WHERE relname LIKE 'activities%%'").fetchall()
    assert len(kinds) >= 3 and set(kinds) == {("p",)}, "the table, its indexes and its sequence"


def read(sandbox, activity_id):
    with connection():
        return (Sandbox.get_by_id(sandbox.id), Activity.get_by_id(activity_id).expires_at)
