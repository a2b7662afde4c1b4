"""What comes at once of several connections, one of which gives way to another."""
import selectors
import socket

import pytest
from gunicorn.config import Config

from app.http.server import lingering, worker
from app.http.server.lingering import Lingering
from app.http.server.worker import PatientWorker

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n"
MOST_BYTES = 200_000


class Loop:
    """A worker whose loop a test turns, and the other ends of its connections."""

    def __init__(self):
        self.worker = PatientWorker(1, 1, [], None, 30, Config(), None)
        self.worker.poller = selectors.DefaultSelector()
        self.worker._lingering = Lingering(self.worker.poller)
        self.clients = []

    def connect(self, take):
        """Have the worker `take` one end of a connection; gives the other."""
        ours, theirs = socket.socketpair()
        take(ours)
        self.clients.append(theirs)
        return theirs

    def turn(self):
        self.worker.wait_for_and_dispatch_events(0.5)

    @property
    def waited_for(self):
        return len(self.worker.poller.get_map())

    def close(self):
        for link in self.clients:
            link.close()
        for key in list(self.worker.poller.get_map().values()):
            key.fileobj.close()
        self.worker.poller.close()
        self.worker.tmp.close()


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


def test_bodies_that_take_too_much_memory(loop, monkeypatch):
    monkeypatch.setattr(worker, "_COLLECTED_MAX_BYTES", MOST_BYTES)

    def take(link):
        loop.worker.nr_conns += 1
        loop.worker._collect(loop.worker._connection(link, ("127.0.0.1", 1), ("127.0.0.1", 2)))

    for _ in range(4):
        loop.connect(take).sendall(HEAD + bytes(40_000))
        loop.turn()
    assert loop.waited_for == 4 and loop.worker._collected_bytes < MOST_BYTES
    for client in reversed(loop.clients):
        client.sendall(bytes(19_000))
    for _ in range(4):
        loop.turn()
    assert loop.waited_for == loop.worker.nr_conns == 3
    assert loop.worker._collected_bytes == 3 * (len(HEAD) + 59_000)


def test_more_closed_sockets_than_are_drained(loop, monkeypatch):
    monkeypatch.setattr(lingering, "_MOST", 2)
    close = loop.worker._lingering.close
    eldest, another = loop.connect(close), loop.connect(close)
    one_more, theirs = socket.socketpair()
    loop.clients.append(theirs)
    closing = loop.connect(lambda link: loop.worker.poller.register(
        link, selectors.EVENT_READ, lambda _: close(one_more)))
    for client in (closing, eldest, another):
        client.send(b"x")
    loop.turn()
    assert loop.waited_for == 3
