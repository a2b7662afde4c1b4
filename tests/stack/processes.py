"""A process of the Procfile beside those of a stack, with settings of its own, to be stopped or
killed by the test; and a whole second node of such processes."""
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bin.stack import health
from bin.stack.free_ports import free_port
from bin.stack.running import Stack, private_stack
from bin.stack.site import ROOT
from bin.stack.supervision.supervise import procfile
from tests.stack.database import query
from tests.stack.waiting import eventually, until


class Process:
    """One run of the Procfile's `name` in the environment of `stack`, `values` winning; use it as a
    context manager."""

    def __init__(self, stack: Stack, name: str, values: Mapping[str, str], log: Path) -> None:
        self._command = ["sh", "-c", procfile()[name]]
        self._environ = {**stack.env, **values}
        self.log = log
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        with self.log.open("ab") as stream:
            self._process = subprocess.Popen(self._command, env=self._environ, cwd=ROOT,
                                             stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                                             start_new_session=True)

    @property
    def pid(self) -> int:
        """The process; its children do the work, where there are any."""
        return self._process.pid

    def stop(self, timeout_s: float = 30) -> None:
        """Stop it politely and wait for its end."""
        self._process.terminate()
        self._process.wait(timeout_s)

    def kill(self) -> None:
        """kill -9 with all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


# What a node has for itself, even beside another on one machine.
_OF_ONE_NODE = {"SVC_DATA_DIR", "SVC_NODE_DIR", "SVC_NODE_ID", "SVC_NET_PREFIX", "SVC_SLOT_NETWORK",
                "SVC_HOST_PORTS", "SVC_AGENT_PORTS", "SVC_VM_UID_BASE", "SVC_FAULT_FILE"}


@contextlib.contextmanager
def second_node(stack: Stack, node_id: str, lanes: Iterable[str],
                **settings: str) -> Iterator[Stack]:
    """Another VM host beside that of `stack`, on this machine: the processes `node-<lane>`, with a
    directory, ports and a network of their own, and `settings`. It takes new sandboxes within the
    block."""
    shared = {name: value for name, value in stack.site.values.items() if name not in _OF_ONE_NODE}
    processes = [f"node-{lane}" for lane in lanes]
    node = private_stack(f"test-{node_id}", {**shared, **settings, "SVC_NODE_ID": node_id},
                         processes=processes)
    try:
        node.supervisor.launch()
        node.start(*processes)
        # Another run of this test may have left its row.
        until(lambda: query(stack, "SELECT 1 FROM nodes WHERE id = %s AND heartbeat_at > now()"
                                   " - interval '5 seconds'", node_id))
        query(stack, "UPDATE nodes SET accepting = true WHERE id = %s", node_id)
        yield node
    finally:
        node.destroy()
        query(stack, "UPDATE nodes SET accepting = false, heartbeat_at = 'epoch' WHERE id = %s",
              node_id)


@contextlib.contextmanager
def impatient_api(stack: Stack, directory: Path) -> Iterator[tuple[Process, dict[str, str]]]:
    """As `another_api`, but it waits for a second only, for heads and bodies."""
    with another_api(stack, directory, SVC_HEAD_S="1", SVC_BODY_SILENCE_S="1") as made:
        yield made


@contextlib.contextmanager
def another_api(stack: Stack, directory: Path,
                **settings: str) -> Iterator[tuple[Process, dict[str, str]]]:
    """An API of one process beside the stack's own, once it answers; and its settings. Its log is
    in `directory`."""
    url = f"http://127.0.0.1:{free_port(0)}"
    values = {"SVC_API_URL": url, "SVC_API_WORKERS": "1", **settings}
    with Process(stack, "api", values, directory / "log") as process:
        assert eventually(lambda: health.answers(f"{url}/health"), 60), process.log.read_text()
        yield process, values
