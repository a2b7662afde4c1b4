"""The least rate of a stream to or from a guest, behind real sockets: who drips fails, who is slow
because of us does not."""
import contextlib
import socket
import threading
import time

import pytest

from guest.agent.protocol import DATA, RESULT, encode_frame, encode_json
from guest.client import pace
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentTooSlow

WINDOW_S, LEAST = 0.4, 10_000


@pytest.fixture(autouse=True)
def short_window(monkeypatch):
    monkeypatch.setattr(pace, "WINDOW_S", WINDOW_S)


@contextlib.contextmanager
def guest(behave):
    """A client of a guest that reads the request and then behaves as told."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError):
                peer, _ = listener.accept()
                with peer:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    peer.recv(4096)
                    behave(peer)
        threading.Thread(target=serve, daemon=True).start()
        yield AgentClient("127.0.0.1", listener.getsockname()[1], "token")


def drip(peer):
    frame = encode_frame(DATA, bytes(100_000))
    for byte in frame:
        peer.sendall(bytes([byte]))
        time.sleep(0.01)


def test_a_guest_that_drips_its_archive_fails_within_a_few_windows():
    with guest(drip) as agent, pytest.raises(AgentTooSlow):
        began = time.monotonic()
        list(agent.archive("/home/user", 60, min_bytes_per_s=LEAST))
    assert time.monotonic() - began < 30


def test_a_guest_that_is_silent_fails_too():
    with guest(lambda peer: time.sleep(30)) as agent, pytest.raises(AgentTooSlow):
        list(agent.archive("/home/user", 60, min_bytes_per_s=LEAST))


@pytest.mark.slow
def test_a_reader_of_ours_that_takes_its_time_does_not_count():
    def send(peer):
        for _ in range(4):
            peer.sendall(encode_frame(DATA, bytes(3000)))
        peer.sendall(encode_json(RESULT, {"sizeBytes": 12_000}))

    with guest(send) as agent:
        received = 0
        for chunk in agent.archive("/home/user", 60, min_bytes_per_s=LEAST):
            time.sleep(2 * WINDOW_S)
            received += len(chunk)
    assert received == 12_000


def test_a_guest_that_takes_nothing_of_an_upload_fails():
    def content():
        while True:
            yield bytes(1 << 20)

    with guest(lambda peer: time.sleep(30)) as agent, pytest.raises(AgentTooSlow):
        agent.unarchive("/home/user", content(), 60, min_bytes_per_s=LEAST)


def test_a_guest_may_work_on_what_it_was_sent_in_silence():
    def unpack(peer):
        time.sleep(3 * WINDOW_S)
        peer.sendall(encode_json(RESULT, {"sizeBytes": 1}))

    with guest(unpack) as agent:
        agent.unarchive("/home/user", [b"x"], 60, min_bytes_per_s=LEAST)
