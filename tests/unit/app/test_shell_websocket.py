"""The WebSocket of a shell on a real pair of sockets: who reads nothing or says nothing has left,
and what is no WebSocket frame ends it."""
import contextlib
import socket
import threading

import pytest

from app.shell import websocket
from app.shell.websocket import ShellSocket

KEY = "MDEyMzQ1Njc4OWFiY2RlZg=="


class Pair:
    """A ShellSocket and its client's socket, after the 101; `taken` are messages, `left` is set
    when the client has."""

    def __init__(self):
        self.ours, self.client = ours, _ = socket.socketpair()
        self.taken, self.refused, self.left = [], [], threading.Event()
        self.link = ShellSocket({"gunicorn.socket": ours, "HTTP_SEC_WEBSOCKET_KEY": KEY,
                                 "HTTP_AUTHORIZATION": "Bearer secret"})
        self.link.listen(self.taken.append, lambda *why: self.refused.append(why), self.left.set)
        self.client.settimeout(10)
        self.head = self.client.recv(65536)


@pytest.fixture
def pair(monkeypatch):
    """One that is patient for a second only."""
    options = [(level, name, websocket.struct.pack("ll", 1, 0))
               if name in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO) and level == socket.SOL_SOCKET
               else (level, name, value) for level, name, value in websocket._SOCKET_OPTIONS
               if level == socket.SOL_SOCKET]
    monkeypatch.setattr(websocket, "_SOCKET_OPTIONS", options)
    made = Pair()
    yield made
    made.link.close()
    made.ours.close()
    made.client.close()


def test_the_answer_names_the_subprotocol_and_nothing_that_came(pair):
    assert b"101" in pair.head.splitlines()[0] and b"svc.shell.v1" in pair.head
    assert b"secret" not in pair.head and b"deflate" not in pair.head


def test_who_reads_nothing_has_left(pair):
    with pytest.raises(websocket.ConnectionClosed):
        for _ in range(1000):
            pair.link.send(b"\0" + b"x" * 30_000)
    assert pair.left.wait(5)


def test_who_answers_no_ping_has_left(pair):
    pair.link.ping()
    assert pair.client.recv(2) == b"\x89\x00"
    assert pair.left.wait(5)


@pytest.mark.slow
def test_who_answers_pings_stays(pair):
    for _ in range(5):
        pair.client.sendall(b"\x8a\x80\0\0\0\0")  # a pong
        assert not pair.left.wait(0.6)


def test_a_ping_never_waits(pair):
    pair.ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            pair.ours.send(b"x" * 65536)
    pair.ours.setblocking(True)
    pair.link.ping()
    with pair.link._lock:
        pair.link.ping()


def test_bytes_that_are_no_frame_end_it(pair):
    pair.client.sendall(b"\x82\x05hello")  # not masked
    assert pair.left.wait(5) and pair.taken == []
    close = pair.client.recv(65536)
    assert close[0] == 0x88 and int.from_bytes(close[2:4], "big") == 1002
