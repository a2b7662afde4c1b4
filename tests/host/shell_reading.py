"""Reads the terminal of an open shell until something has come, as a person would."""
import re
import time

from guest.client.open_shell import OpenShell


def read_until(shell: OpenShell, expected: str, within_s: float = 20.0) -> str:
    """What the terminal shows up to a match."""
    seen, end = b"", time.monotonic() + within_s
    while not re.search(expected.encode(), seen):
        piece = shell.receive(max(end - time.monotonic(), 0))
        assert piece, f"{expected!r} did not come, but {seen[-2000:]!r}"
        seen += piece
    return seen.decode(errors="replace")


def run(shell: OpenShell, line: str) -> tuple[str, int | None]:
    """Type a line that ends the shell; all output, and the exit code."""
    shell.send(line.encode() + b"\n")
    return b"".join(shell.output()).decode(), shell.exit_code


def pid_of(shell: OpenShell, line: str) -> int:
    """Type a line that shows `pid=N.`"""
    shell.send(line.encode() + b"\n")
    found = re.search(r"pid=(\d+)\.", read_until(shell, r"pid=\d+\."))
    assert found
    return int(found[1])
