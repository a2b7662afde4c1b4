"""Turns the JSON of a request into checked values; anything malformed is refused before it touches
the system."""
import os
from typing import Any, NamedTuple

from .protocol import BAD_REQUEST, DEFAULT_CAP_BYTES, DEFAULT_TIMEOUT_MS, Refused

HOME_DIR = "/home/user"
SHELL = "/bin/bash"
BASE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": SHELL,
    "LANG": "C.UTF-8",
}
MAX_TIMEOUT_MS = 24 * 3600 * 1000


class ExecRequest(NamedTuple):
    """A command to run: program and arguments, where, with which environment, and its limits."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    timeout_ms: int
    cap_bytes: int
    detached: bool


def text(request: dict[str, Any], name: str, default: str | None = None) -> str:
    """A string without NUL; refused if it is missing and has no default."""
    value = request.get(name, default)
    if not isinstance(value, str) or "\0" in value:
        raise Refused(BAD_REQUEST, f"{name} must be a string without NUL")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Refused(BAD_REQUEST, f"{name} is not valid Unicode") from error
    return value


def integer(request: dict[str, Any], name: str, low: int, high: int,
            default: int | None = None) -> int:
    """An integer within both bounds; refused if it is missing and has no default."""
    value = request.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Refused(BAD_REQUEST, f"{name} must be an integer from {low} to {high}")
    return value


def flag(request: dict[str, Any], name: str) -> bool:
    """A boolean, false if it is missing."""
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise Refused(BAD_REQUEST, f"{name} must be true or false")
    return value


def environment(request: dict[str, Any], name: str = "env") -> dict[str, str]:
    """A table of variables, empty if it is missing."""
    value = request.get(name) or {}
    if not isinstance(value, dict):
        raise Refused(BAD_REQUEST, f"{name} must be an object")
    for key in value:
        if not key or "=" in key or "\0" in key:
            raise Refused(BAD_REQUEST, f"{name} has an impossible variable name")
        text(value, key)
    return value


def guest_path(request: dict[str, Any], name: str = "path") -> str:
    """An absolute path; a relative one counts from the home directory of the default user."""
    path = text(request, name)
    if not path:
        raise Refused(BAD_REQUEST, f"{name} must not be empty")
    return os.path.join(HOME_DIR, path)


def exec_request(request: dict[str, Any], adopted_env: dict[str, str], root: str) -> ExecRequest:
    """The command of an `exec`: `argv`, or `shell`, a line for the shell; its own env wins over the
    adopted one."""
    argv = request.get("argv")
    if (argv is None) == ("shell" not in request):
        raise Refused(BAD_REQUEST, "exactly one of argv and shell is needed")
    if argv is None:
        argv = [SHELL, "-c", text(request, "shell")]
    if not isinstance(argv, list) or not argv or not argv[0]:
        raise Refused(BAD_REQUEST, "argv must be a list that begins with a program")
    for position, argument in enumerate(argv):
        text({f"argv[{position}]": argument}, f"argv[{position}]")
    return ExecRequest(
        argv=argv,
        cwd=root + _working_directory(request, root),
        env=BASE_ENV | adopted_env | environment(request),
        timeout_ms=integer(request, "timeoutMs", 1, MAX_TIMEOUT_MS, DEFAULT_TIMEOUT_MS),
        cap_bytes=integer(request, "capBytes", 0, 1 << 30, DEFAULT_CAP_BYTES),
        detached=flag(request, "detached"),
    )


def _working_directory(request: dict[str, Any], root: str) -> str:
    """The directory asked for, else the home directory, else (a user may have removed it) the
    root."""
    if request.get("cwd"):
        return guest_path(request, "cwd")
    return HOME_DIR if os.path.isdir(root + HOME_DIR) else "/"
