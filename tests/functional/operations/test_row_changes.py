"""The thread that listens for changed rows: what it says when it loses its connection, and its
end."""
import logging
import queue
import threading

import psycopg2
import pytest

from models.database import DatabaseUnavailable, connection, database
from services.operations import row_changes
from services.operations.listening import Listener
from tests.stack.waiting import eventually, until

LOST = "the listener of channel sandbox lost its connection"


@pytest.fixture
def listening(deps):
    """A listener that has its connection, and has told whoever waited until then to look again."""
    row_changes.stop_listening()
    assert row_changes.wait_until("nobody", lambda: None, 0.0) is None
    until(lambda: listeners() == 1)
    assert woken("nobody")


def listeners():
    with connection():
        return database.execute_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND query = 'LISTEN sandbox'").fetchone()[0]


def woken(sandbox_id):
    """True if a waiter notices a change long before it would ask by itself."""
    noticed = threading.Event()
    with row_changes.changes(sandbox_id) as changed:
        until(lambda: not changed())
        with connection():
            row_changes.notify(sandbox_id)
        if eventually(changed, 5.0):
            noticed.set()
    return noticed.is_set()


def test_one_that_is_stopped_says_nothing_and_the_next_wait_starts_another(listening, caplog):
    with caplog.at_level(logging.WARNING):
        row_changes.stop_listening()
        until(lambda: listeners() == 0)
        assert LOST not in caplog.text
    assert row_changes.wait_until("nobody", lambda: None, 0.0) is None
    until(lambda: listeners() == 1)
    assert woken("some")


def test_a_lost_connection_is_told_and_made_again(listening, postgres_url, caplog):
    with caplog.at_level(logging.WARNING):
        link = psycopg2.connect(postgres_url)
        with link, link.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                           " WHERE datname = current_database() AND query = 'LISTEN sandbox'")
        link.close()
        until(lambda: LOST in caplog.text)
        until(lambda: listeners() == 1)
    assert woken("some")


@pytest.mark.slow
def test_a_wait_of_many_looks_again_when_something_has_changed_and_hardly_otherwise(listening):
    looks = []

    def probe():
        looks.append(threading.current_thread().name)
        return True if len(looks) == 2 else None

    assert row_changes.wait_until("still", lambda: looks.append(1), 4.0, of_many=True) is None
    assert len(looks) == 2, "at the beginning and at the end"
    looks.clear()
    waiter = threading.Thread(target=row_changes.wait_until, args=("some", probe, 60.0),
                              kwargs={"of_many": True})
    waiter.start()
    until(lambda: len(looks) == 1)
    with connection():
        row_changes.notify("some")
    waiter.join(5.0)
    assert not waiter.is_alive()


@pytest.mark.slow
def test_a_change_while_nobody_listens_is_not_missed(listening):
    """Whoever waits looks again as soon as somebody listens again."""
    looks = []
    waiter = threading.Thread(target=row_changes.wait_until,
                              args=("some", lambda: looks.append(1) or None, 8.0),
                              kwargs={"of_many": True})
    waiter.start()
    until(lambda: len(looks) == 1)
    with connection():
        database.execute_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                             " WHERE datname = current_database() AND query = 'LISTEN sandbox'")
    until(lambda: len(looks) == 2, timeout_s=6)
    waiter.join()


def test_what_is_told_while_the_connection_is_looked_at_is_heard_at_once(deps, monkeypatch):
    """The answer to the look brings it along, and nothing more comes that would wake the thread."""
    monkeypatch.setattr("services.operations.listening._QUIET_MS", 0)
    heard, begun = queue.Queue(), threading.Event()
    listener = Listener("looked_at", lambda told: [heard.put(each) for each in told], begun.set)
    listener.start()
    assert begun.wait(10)
    for number in range(100):
        with connection():
            database.execute_sql("SELECT pg_notify('looked_at', %s)", (str(number),))
        assert heard.get(timeout=10) == str(number)
    listener.end()


def test_a_patient_wait_outlasts_the_database_and_no_other_does(listening, away):
    with away():
        with pytest.raises(DatabaseUnavailable):
            row_changes.wait_until("some", lambda: "seen", 60.0)
        assert row_changes.wait_until("some", lambda: "seen", 0.0, patient=True) is None
    assert row_changes.wait_until("some", lambda: "seen", 0.0, patient=True) == "seen"
