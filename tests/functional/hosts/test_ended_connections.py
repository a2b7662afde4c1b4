"""Connections of this host to the ports of a guest that has gone."""
import socket

import pytest

from nodeworker.network.end_connections import end_connections

ELSEWHERE = "127.0.0.9"


@pytest.fixture
def connected():
    """Makes connections of this process to itself: the near end, and the port it leads to."""
    made = []

    def connect(address="127.0.0.1"):
        with socket.create_server((address, 0)) as listener:
            near = socket.create_connection(listener.getsockname(), timeout=5)
            made.extend([near, listener.accept()[0]])
            return near, listener.getsockname()[1]

    yield connect
    for end in made:
        end.close()


def is_open(near):
    """A connection on which nothing has come."""
    near.setblocking(False)
    try:
        return near.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_connections_to_the_ports_end_and_no_others(connected):
    (first, first_port), (second, second_port) = connected(), connected("127.0.0.2")
    (other, _), (far, far_port) = connected(), connected(ELSEWHERE)
    end_connections("127.0.0.2", [first_port, second_port, far_port])
    assert not is_open(first) and not is_open(second), "to loopback and to the host's address"
    assert is_open(other), "to another port"
    assert is_open(far), "to another host"


def test_nobody_is_harmed_where_no_port_ended(connected):
    near, _ = connected()
    end_connections("127.0.0.1", [])
    assert is_open(near)
