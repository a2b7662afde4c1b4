"""What a deploy makes a simulated guest do (see `nodeworker/deploys/`): build a project, look at
what was built, start an app.

The lines of a project's `svc.json` are simulated commands: `"build": "sleep 2"`, `"start":
"serve 3000 0 PORT"`. What is built is what was uploaded. A project without that file is built for
ever. An app may say that it has a database: its requests are held and it is moved as any other, but
there is never anything in it, and what is frozen goes on.
"""
import json
import posixpath
import shlex
from collections.abc import Callable
from typing import Any

from nodeworker.hypervisor.simulated.guest import HOME, Guest

_WORK, _PORT = "/run/svc-build", 3000
_RUN, _APP = "/opt/svc-app/run", "svc-app.service"
# Of scripts that install, freeze and thaw an app, drop its database, and replicate it.
_NOTHING_TO_DO = (f"systemctl enable --quiet {_APP}", "cgroup.freeze", "rm -rf -- ",
                  "unit=/etc/systemd/system/svc-replicate.service")
# What the script says that brings a database to the store (`nodeworker/deploys/replication.py`).
_NO_DATABASE = 9
_SQLITE = b"SQLite format 3\0"
# Runs a line of the shell: what it says, and its exit code.
Run = Callable[[str], tuple[bytes, int]]


def script(guest: Guest, text: str, cwd: str, run: Run) -> tuple[bytes, int] | None:
    """The output and exit code of a script that a deploy runs; None for any other."""
    if text.startswith(f"mkdir {_WORK} "):
        _build(guest, shlex.split(text)[-2], cwd, run)
        return b"", 0
    if text.startswith(f"[ -e {_WORK} ] || exit 0; cat {_WORK}/exit "):
        return _look(guest, text) if f"{_WORK}/session" in guest.files else b"", 0
    if text.startswith(f"cd {_WORK}; "):
        return guest.files.get(f"{_WORK}/log", b""), 0
    if text == f"systemctl start --no-block {_APP}":
        return run(shlex.split(guest.files[_RUN].decode().splitlines()[-1])[-1])
    if text == f"systemctl stop {_APP}":
        guest.end_listener(_PORT)
        return b"", 0
    if f"exit {_NO_DATABASE}" in text:
        return b"", _NO_DATABASE
    return (b"", 0) if any(part in text for part in _NOTHING_TO_DO) else None


def _build(guest: Guest, line: str, cwd: str, run: Run) -> None:
    """Once for each guest; it is over when its exit code is written."""
    if f"{_WORK}/session" in guest.files or posixpath.join(cwd, "svc.json") not in guest.files:
        return
    guest.files[f"{_WORK}/session"] = b""
    said, code = run(line) if line else (b"", 0)
    guest.files[f"{_WORK}/log"] = f"$ {line}\n".encode() + said
    guest.files[f"{_WORK}/exit"] = f"{code}\n".encode()


def _look(guest: Guest, text: str) -> bytes:
    """The exit code, and the log from the byte that `tail` is told."""
    code, begin = guest.files.get(f"{_WORK}/exit", b"-\n"), text.rpartition("tail -c +")[2]
    return code + guest.files.get(f"{_WORK}/log", b"")[int(begin.split()[0]) - 1:]


def look(guest: Guest, candidates: str, request: dict[str, Any]) -> bytes:
    """What `LOOK` of `nodeworker/deploys/build_scripts.py` finds in the project's directory."""
    root = (request.get("cwd") or HOME).rstrip("/") + "/"
    files = {path.removeprefix(root): content for path, content in guest.files.items()
             if path.startswith(root)}
    pages = {posixpath.dirname(path) or "." for path in files
             if posixpath.basename(path) == "index.html"}
    return json.dumps({
        "directories": [each for each in json.loads(candidates) if each in pages],
        "databases": [path for path, content in files.items() if content.startswith(_SQLITE)],
        "functions": sum(path.startswith("functions/") for path in files), "tooMany": False,
    }).encode()
