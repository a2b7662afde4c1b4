"""Runs one shell line to its end, within a time limit, and shows or returns what it prints."""
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping

from bin.console import Advice, say
from bin.stack.site import ROOT

_PATIENCE_S = 5.0


def run_command(command: str, env: Mapping[str, str], timeout_s: float, *,
                show: bool = False) -> str:
    """What `command` prints; `show` prints it at once too.

    Raises Advice with the last lines if it fails or takes longer than `timeout_s` seconds. When
    this is broken off, by Ctrl-C, the command has some seconds to put right what it was at. In
    either case nothing of its process group is left.
    """
    lines: list[str] = []
    process = subprocess.Popen(["sh", "-c", command], env=env, cwd=ROOT, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    alarm = threading.Timer(timeout_s, _kill_group, [process.pid])
    try:
        with process:
            try:
                alarm.start()
                for line in process.stdout or ():
                    lines.append(line)
                    if show:
                        say(f"  {line.rstrip()}")
            except BaseException:
                _end_group(process)
                raise
    finally:
        alarm.cancel()
    if process.returncode:
        raise Advice(f"`{command}` failed:\n{''.join(lines[-20:])}")
    return "".join(lines)


def _end_group(process: "subprocess.Popen[str]") -> None:
    """Politely first. Its first process, which we reap, may end before the others."""
    deadline = time.monotonic() + _PATIENCE_S
    try:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
    finally:
        _kill_group(process.pid)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
