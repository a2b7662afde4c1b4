"""Runs the programs an image is made with: progress on standard output, their own words only when they fail."""
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from guest.image.errors import ImageError

_PACKAGE_OF = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "gpgv": "gpgv", "npm": "npm"}


def say(text: str) -> None:
    """One line of progress."""
    print(f"[image] {time.strftime('%H:%M:%S')} {text}", flush=True)


def require(*programs: str) -> None:
    """Raise ImageError unless every program is installed."""
    for program in programs:
        if not shutil.which(program, path=search_path()):
            raise ImageError(f"{program} is needed; install it with: apt-get install {_PACKAGE_OF.get(program, program)}")


def search_path() -> str:
    """The usual search path, with the directories of system programs that a plain user's lacks."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def run(command: Sequence[str | Path], *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: Path | None = None,
        log: Path | None = None) -> str:
    """Run `command` to its end and return what it printed; raises ImageError with its last lines if it fails.

    With `log`, everything it says goes to that file as well, so that a long build can be watched.
    """
    arguments = [str(part) for part in command]
    environment = {**os.environ, **(env or {}), "PATH": search_path(), "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(arguments, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as expired:
        raise ImageError(f"{arguments[0]} did not end within {timeout_s:.0f} s; check the network and run it again") from expired
    output = done.stdout.decode(errors="replace")
    if log:
        log.write_text(output, encoding="utf-8")
    if done.returncode:
        raise ImageError(f"{arguments[0]} failed with status {done.returncode}:\n" + "\n".join(output.splitlines()[-15:]))
    return output
