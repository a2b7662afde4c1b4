"""Runs one shell line to its end, within a time limit, and shows or returns what it prints."""
import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping

from bin.console import Advice, say
from bin.stack.site import ROOT

_PATIENCE_S = 5.0
_LOOK_UP_MS = 500


def run_command(command: str, env: Mapping[str, str], timeout_s: float, *,
                show: bool = False) -> str:
    """What `command` prints; `show` prints it at once too.

    Raises Advice with the last lines if it fails or takes longer than `timeout_s` seconds. When
    this is broken off, by Ctrl-C, the command has some seconds to put right what it was at. In
    either case nothing of its process group is left.
    """
    lines: list[str] = []
    process = subprocess.Popen(["sh", "-c", command], env=env, cwd=ROOT,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    alarm = threading.Timer(timeout_s, _kill_group, [process.pid])
    try:
        with process:
            try:
                alarm.start()
                for line in _lines_of(process):
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


def _lines_of(process: "subprocess.Popen[bytes]") -> Iterator[str]:
    """What it prints, line by line. A signal that comes just before a read begins is noticed only
    after it, so nothing is read before it is there."""
    assert process.stdout is not None
    pipe, rest = process.stdout.fileno(), b""
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    while True:
        if not poller.poll(_LOOK_UP_MS):
            continue
        printed = os.read(pipe, 65536)
        if not printed:
            break
        *whole, rest = (rest + printed).split(b"\n")
        yield from (line.decode(errors="replace") + "\n" for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def _end_group(process: "subprocess.Popen[bytes]") -> None:
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
