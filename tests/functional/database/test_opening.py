"""A server that says nothing costs those who want a connection one try, however many they are; one
that refuses costs them nothing."""
import signal
import socket
import threading
import time

import pytest

from models.database import DatabaseUnavailable, answers, connect, connection, database
from tests.stack.waiting import until

TRY_S, OTHERS = 3.0, "has just said nothing to another"


@pytest.fixture
def url(edge):
    """The database's; every connection to it is yet to be opened, and it is pointed at again."""
    database.close_idle()
    yield edge.settings.database_url
    connect(edge.settings.database_url)
    until(answers)


@pytest.fixture
def silent(servers, url):
    """The server takes connections and says nothing, until it is called."""
    servers.kill("postgres", signal.SIGSTOP)
    yield lambda: servers.kill("postgres", signal.SIGCONT)
    servers.kill("postgres", signal.SIGCONT)


def why():
    """Why there is no connection for a call that needs one."""
    with pytest.raises(DatabaseUnavailable) as failed, connection():
        pass
    return str(failed.value)


@pytest.mark.slow
def test_those_who_wait_for_a_silent_server_fail_together(silent):
    began, failed = time.monotonic(), []
    threads = [threading.Thread(target=lambda: failed.append(why())) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 2 * TRY_S
    assert sorted(OTHERS in reason for reason in failed) == [False] + [True] * 9
    assert OTHERS in why(), "nor does one that comes in the moment after it wait"
    silent()
    until(answers, 5)


@pytest.mark.slow
def test_the_silence_of_one_server_is_not_held_against_another(url):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connect(f"postgresql://127.0.0.1:{listening.getsockname()[1]}/none?connect_timeout=2")
        assert "timeout" in why()
    connect(url)
    assert answers()


def test_a_refusal_is_no_silence(url):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    connect(f"postgresql://127.0.0.1:{port}/none")
    for _ in range(3):
        assert "refused" in why(), "each asks for itself"
    connect(url)
    assert answers()


@pytest.mark.parametrize(("query", "limit"), [("", 15000), ("?tcp_user_timeout=500", "500")])
def test_what_is_sent_to_a_host_that_has_vanished_is_waited_for_a_while(url, query, limit):
    connect(f"{url}{query}")
    assert database.connect_params["tcp_user_timeout"] == limit
    with connection(), socket.fromfd(database.connection().fileno(), socket.AF_INET,
                                     socket.SOCK_STREAM) as link:
        kernels = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert kernels == int(limit)
