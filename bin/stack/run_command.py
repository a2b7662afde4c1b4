"""Runs one shell line to its end, within a time limit, and shows or returns what it prints."""
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping

from bin.console import Advice, say
from bin.stack.site import ROOT


def run_command(command: str, env: Mapping[str, str], timeout_s: float, *,
                show: bool = False) -> str:
    """What `command` prints; `show` prints it at once too.

    Raises Advice with the last lines if it fails or takes longer than `timeout_s` seconds; then
    nothing of its process group is left.
    """
    lines: list[str] = []
    process = subprocess.Popen(["sh", "-c", command], env=env, cwd=ROOT, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    alarm = threading.Timer(timeout_s, _kill_group, [process.pid])
    alarm.start()
    try:
        with process:
            for line in process.stdout or ():
                lines.append(line)
                if show:
                    say(f"  {line.rstrip()}")
    except BaseException:
        _kill_group(process.pid)
        raise
    finally:
        alarm.cancel()
    if process.returncode:
        raise Advice(f"`{command}` failed:\n{''.join(lines[-20:])}")
    return "".join(lines)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
