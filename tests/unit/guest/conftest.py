"""A real agent process on a loopback port, in a directory that it takes for the guest's root; and
guests that behave as a test tells them."""
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest.client.agent_client import AgentClient
from tests.host.agent_process import TOKEN, RunningAgent, start_agent, stop_agent

Behaviour = Callable[[socket.socket], None]
EXEC_REPLY = {
    "exitCode": 0, "timedOut": False, "stdoutTruncated": False, "stderrTruncated": False, "pid": 1
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files an image has before the agent starts."""
    for directory in ("opt/svc", "home/user", "etc/ssh", "run", "var/log"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "opt/svc/initial-token").write_text(TOKEN + "\n")
    return tmp_path


@pytest.fixture
def agent(root: Path) -> Iterator[RunningAgent]:
    """A running agent; it must still be alive, and answer, when the test is over."""
    running = start_agent(root)
    try:
        yield running
        assert running.process.poll() is None, "the agent died during the test"
    finally:
        stop_agent(running)


@pytest.fixture
def client(agent: RunningAgent) -> AgentClient:
    return agent.client()


@pytest.fixture
def guest_that() -> Iterator[Callable[[Behaviour], AgentClient]]:
    """Make a guest that reads the request and then behaves as told; returns a client for it."""
    listeners = []

    def make(behave: Behaviour) -> AgentClient:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            try:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    behave(peer)
            except OSError:
                pass  # the client has had enough, which is what most of these tests want

        threading.Thread(target=serve, daemon=True).start()
        return AgentClient("127.0.0.1", listener.getsockname()[1], "token")

    yield make
    for listener in listeners:
        listener.close()


def sends(*frames: bytes) -> Behaviour:
    def behave(peer: socket.socket) -> None:
        for frame in frames:
            peer.sendall(frame)
    return behave


def sends_for_ever(frame: bytes) -> Behaviour:
    def behave(peer: socket.socket) -> None:
        while True:
            peer.sendall(frame)
    return behave
