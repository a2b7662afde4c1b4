"""A process of the Procfile beside those of a stack, with settings of its own, to be stopped or
killed by the test."""
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bin.stack.running import Stack
from bin.stack.site import ROOT
from bin.stack.supervise import procfile


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
