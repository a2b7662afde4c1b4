"""A real agent process on a loopback port, in a directory that it takes for the guest's root."""
import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bin.stack.site import ROOT
from guest.client.agent_client import AgentClient

TOKEN = "the-token-of-a-fresh-boot"


@dataclass
class RunningAgent:
    """An agent process, its root directory and how to reach it."""

    root: Path
    process: subprocess.Popen[str]
    port: int

    def client(self, token: str = TOKEN) -> AgentClient:
        return AgentClient("127.0.0.1", self.port, token)

    def children(self) -> list[int]:
        of_main_thread = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in of_main_thread.read_text().split()]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_bytes(self) -> int:
        facts = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", facts)
        assert found
        return int(found[1]) * 1024


def start_agent(root: Path) -> RunningAgent:
    """Start an agent in `root` and wait until it says that it listens."""
    process = subprocess.Popen(
        [
            sys.executable, "-E", "-s", "-m", "guest.agent", "--root", str(root), "--host",
            "127.0.0.1",
            "--port",
            "0",
        ],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]},
        preexec_fn=_hear_signals,
    )
    assert process.stdout
    said = process.stdout.readline()
    assert said.startswith("svc-agent listens on port "), said
    return RunningAgent(root, process, int(said.split()[-1]))


def _hear_signals() -> None:
    """As in a guest: tests in the background of a shell, or under nohup, ignore these."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def stop_agent(agent: RunningAgent) -> None:
    """End it and the commands it still watches, which would have no deadline any more."""
    commands = agent.children() if agent.process.poll() is None else []
    agent.process.kill()
    agent.process.wait(timeout=10)
    for pid in commands:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    assert agent.process.stdout
    agent.process.stdout.close()
