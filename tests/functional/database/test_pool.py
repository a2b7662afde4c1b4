"""A pooled connection is taken without a word to the server, and one that the server has ended is
not taken."""
import threading
import time

import psycopg2
import pytest

from models.database import (
    DatabaseUnavailable,
    connect,
    connection,
    database,
    when_database_answers,
)
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


def test_to_wait_in_vain_for_a_connection_is_a_failure_of_the_database(monkeypatch):
    """So that who waits for the database waits for this as well, and loses no result."""
    database.close_idle()
    monkeypatch.setattr(database, "_max_connections", 1)
    monkeypatch.setattr(database, "_wait_timeout", 0.01)
    given_back = threading.Event()

    def hold(held):
        with connection():
            held.set()
            given_back.wait()

    held = threading.Event()
    holder = threading.Thread(target=hold, args=(held,))
    holder.start()
    held.wait()
    try:
        with pytest.raises(DatabaseUnavailable), connection():
            pass
        monkeypatch.setattr(time, "sleep", lambda _: given_back.set())
        assert when_database_answers(lambda: "written") == "written"
    finally:
        given_back.set()
        holder.join()


def asked_of(outside, number):
    outside.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (number,))
    return outside.fetchone()


def name():
    with connection():
        return database.execute_sql("SELECT current_database()").fetchone()[0]


def test_none_that_leads_to_the_database_before_is_taken(edge, outside, number):
    """Also not one that a thread held meanwhile: it was given back, and as the oldest it was the
    next to be taken."""
    url = edge.settings.database_url
    holding, given_back = threading.Event(), threading.Event()

    def hold():
        with connection():
            holding.set()
            given_back.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait()
    connect(url.rpartition("/")[0] + "/svc")
    given_back.set()
    holder.join()
    found = name()
    connect(url)
    assert (found, name()) == ("svc", url.rpartition("/")[2])
