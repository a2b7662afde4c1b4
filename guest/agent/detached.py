"""Starts a detached command, whose output goes into a log file of its own, and leaves it alone."""
import os

from .commands import CannotStart, exec_reply, start
from .loop import Loop
from .offload import reap_when_dead
from .requests import ExecRequest

LOG_DIR = "/var/log/svc"


def start_detached(loop: Loop, request: ExecRequest, root: str) -> dict:
    """Start the command with its output in a log file and leave it alone; the reply says where both
    are."""
    log_path, log = _open_log(root)
    try:
        process = start(request, log, log)
    except CannotStart as failure:
        os.write(log, failure.sentence.encode() + b"\n")
        return exec_reply(failure.exit_code, log_path=log_path)
    finally:
        os.close(log)
    reap_when_dead(loop, process.pid)
    process.returncode = 0  # it is reaped elsewhere; Popen must not try to
    return exec_reply(0, pid=process.pid, log_path=log_path)


def _open_log(root: str) -> tuple[str, int]:
    """A new log file under LOG_DIR: its path as the guest sees it, and a descriptor open for
    appending."""
    directory = root + LOG_DIR
    os.makedirs(directory, exist_ok=True)
    number = 1 + max((_log_number(name) for name in os.listdir(directory)), default=0)
    while True:
        path = f"{LOG_DIR}/exec-{number}.log"
        try:
            return path, os.open(root + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND,
                                 0o640)
        except FileExistsError:
            number += 1


def _log_number(name: str) -> int:
    digits = name.removeprefix("exec-").removesuffix(".log")
    return int(digits) if digits.isdigit() else 0
