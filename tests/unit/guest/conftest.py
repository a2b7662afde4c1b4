"""A real agent process on a loopback port, in a directory that it takes for the guest's root."""
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.client.agent_client import AgentClient
from tests.host.agent_process import TOKEN, RunningAgent, start_agent, stop_agent


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
