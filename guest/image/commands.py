"""Runs the programs an image is made with: progress on standard output, their own output only when
they fail."""
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
            package = _PACKAGE_OF.get(program, program)
            raise ImageError(f"{program} is needed; install it with: apt-get install {package}")


def search_path() -> str:
    """The usual search path, with the directories of system programs that a plain user's lacks."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def run(command: Sequence[str | Path], *, timeout_s: float, env: Mapping[str, str] | None = None,
        cwd: Path | None = None) -> str:
    """Run `command` to its end and return what it printed; raises ImageError with its last lines if
    it fails."""
    arguments = [str(part) for part in command]
    environment = {**os.environ, **(env or {}), "PATH": search_path(), "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(arguments, env=environment, cwd=cwd, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s,
                              check=False)
    except subprocess.TimeoutExpired as expired:
        sentence = (
            f"{arguments[0]} did not end within {timeout_s:.0f} s; check the network and run it"
            " again"
        )
        raise ImageError(sentence) from expired
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        last_lines = "\n".join(output.splitlines()[-15:])
        raise ImageError(f"{arguments[0]} failed with status {done.returncode}:\n{last_lines}")
    return output
