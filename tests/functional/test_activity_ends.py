"""The end of a call on the data road never spoils its result: an activity that cannot be ended expires."""
import psycopg2
import pytest

from models.base import connection, database
from models.sandboxes import Activity, Sandbox
from services.activity import in_use

SANDBOXES = "/v1/sandboxes"


@pytest.fixture
def sandbox(edge):
    made = edge.api.post(SANDBOXES, json={}, headers=edge.key(edge.user("alice"))).json["id"]
    with connection():
        Sandbox.update(status="running", task=None).where(Sandbox.id == made).execute()
        return Sandbox.get_by_id(made)


def cut_all(edge):
    """End every connection that the pool holds, as a restart of the server does."""
    killer = psycopg2.connect(edge.settings.database_url)
    try:
        with killer, killer.cursor() as cursor:
            cursor.execute("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                           " WHERE datname = current_database() AND pid <> pg_backend_pid()")
    finally:
        killer.close()


def activities(sandbox):
    with connection():
        return Activity.select().where(Activity.sandbox_id == sandbox.id).count()


def test_a_result_survives_the_database_going_away(edge, sandbox):
    with in_use(sandbox, for_s=30, what="exec"):
        assert activities(sandbox) == 1
        cut_all(edge)
        result = "done"
    assert result == "done"
    database.close_idle()
    assert activities(sandbox) == 1, "it was not ended and expires by itself"


def test_an_error_of_the_call_itself_is_the_one_that_is_seen(edge, sandbox):
    with pytest.raises(KeyError), in_use(sandbox, for_s=30, what="exec"):
        cut_all(edge)
        raise KeyError


def test_normally_it_is_ended(edge, sandbox):
    with in_use(sandbox, for_s=30, what="exec"):
        assert activities(sandbox) == 1
    assert activities(sandbox) == 0
