"""What a process is started from: a file for each, which only root reads.

For a process of the table (config/processes.py) it says, in JSON, which line of the shell it runs,
with which settings, account, capabilities and view of the files; bin/stack/supervision/become.py
does what it says. Postgres and Redis, which have accounts of their packages, get a script.
"""
import dataclasses
import json
import os
import shlex
from pathlib import Path

from bin.stack.site import Site
from bin.stack.supervision.file_views import view
from config.processes import Process


@dataclasses.dataclass(frozen=True)
class Start:
    """How a process begins: `command`, a line of the shell, with exactly the variables of
    `environ`, after the lines `view` have laid out its files."""

    name: str
    command: str
    environ: dict[str, str]
    account: str
    capabilities: list[str]
    view: list[str]


def path_of(site: Site, name: str, process: Process | None) -> Path:
    """The file of a process."""
    return site.data_dir / "start" / f"{name}.{'json' if process else 'sh'}"


def write(site: Site, name: str, process: Process | None, command: str) -> None:
    """Write the file of one process. Whole or not at all: it may be starting at this moment."""
    path = path_of(site, name, process)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if process is None:
        shown = shlex.quote(site.supervisor_environ["PATH"])
        _replace(path, f"set -eu\nPATH={shown}\n{command}\n")
        return
    start = Start(name, command, site.environ_of(process), process.account,
                  list(process.capabilities), view(site, process))
    _replace(path, json.dumps(dataclasses.asdict(start), indent=1))


def read(path: Path) -> Start:
    """What `write` wrote for a process of the table."""
    return Start(**json.loads(path.read_text()))


def _replace(path: Path, text: str) -> None:
    draft = path.with_suffix(f"{path.suffix}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    draft.replace(path)
