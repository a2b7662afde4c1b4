"""The end of a call on the data road never spoils its result: an activity that cannot be ended
expires."""
import contextlib
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import pytest

from models.database import connection, database
from models.sandboxes import Activity, Sandbox
from services.guest_calls.activity import in_use

SANDBOXES = "/v1/sandboxes"


@pytest.fixture
def sandbox(edge):
    made = edge.api.post(SANDBOXES, json={}, headers=edge.key(edge.user("alice"))).json["id"]
    with connection():
        Sandbox.update(status="running", task=None).where(Sandbox.id == made).execute()
        return Sandbox.get_by_id(made)


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
