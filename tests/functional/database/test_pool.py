"""A pooled connection is taken without a word to the server, and one that the server has ended is
not taken."""
import psycopg2
import pytest

from models.database import connect, connection, database
from tests.stack.waiting import until


@pytest.fixture
def outside(edge):
    """A connection that is not of the pool, and sees what those of the pool ask."""
    link = psycopg2.connect(edge.settings.database_url)
    link.autocommit = True
    yield link.cursor()
    link.close()


@pytest.fixture
def number(outside):
    """The server's number of the only connection in the pool."""
    database.close_idle()
    with connection():
        return database.execute_sql("SELECT pg_backend_pid()").fetchone()[0]


def asked_last(outside, number):
    outside.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", (number,))
    return outside.fetchone()[0]


def test_taking_a_connection_asks_the_server_nothing(outside, number):
    with connection():
        database.execute_sql("SELECT 'the last'")
    for _ in range(3):
        with connection():
            assert asked_last(outside, number) == "SELECT 'the last'"


def test_a_connection_that_the_server_has_ended_is_replaced(outside, number):
    outside.execute("SELECT pg_terminate_backend(%s)", (number,))
    until(lambda: asked_of(outside, number) is None)
    with connection():
        assert database.execute_sql("SELECT pg_backend_pid()").fetchone()[0] != number


def test_one_with_something_to_say_that_lives_is_kept(outside, number):
    with connection():
        database.execute_sql("LISTEN told")
    outside.execute("NOTIFY told")
    with connection():
        assert database.execute_sql("SELECT pg_backend_pid()").fetchone()[0] == number
        database.execute_sql("UNLISTEN told")


def asked_of(outside, number):
    outside.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (number,))
    return outside.fetchone()


def test_one_that_leads_to_the_database_before_is_not_taken(edge, outside, number):
    url = edge.settings.database_url
    connect(url.rpartition("/")[0] + "/svc")
    with connection():
        assert database.execute_sql("SELECT current_database()").fetchone()[0] == "svc"
    connect(url)
    with connection():
        found = database.execute_sql("SELECT current_database()").fetchone()[0]
    assert found == url.rpartition("/")[2]
