"""Tell which disk layers, warm images and images are needed: those that the records of a node
directory name, and no others.

Spares are read before sandboxes, which they become, and those before snapshots: a snapshot that is
completed in between has the layers of a sandbox that was seen.
"""
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeworker.disks.durable import read_json
from nodeworker.hypervisor.qemu.rundir import RunDir

_SNAPSHOT_RECORD = "snapshot.json"


@dataclass(frozen=True)
class Holder:
    """A sandbox or snapshot with files on this node; `born_ns` orders holders by when they came to
    be here."""

    directory: Path
    chain: tuple[str, ...]
    born_ns: int


class UnreadableRecord(Exception):
    """A record is there and cannot be read, so what it refers to is not known; the text names
    it."""


def sandbox_holders(node_dir: Path) -> Iterator[Holder]:
    """Every sandbox directory, finished or not. Raises UnreadableRecord."""
    for directory in _directories(node_dir / "sandboxes"):
        yield Holder(directory, sandbox_chain(directory), _born_ns(directory / "op.lock"))


def snapshot_holders(node_dir: Path) -> Iterator[Holder]:
    """Every snapshot directory, finished or not. Raises UnreadableRecord."""
    for directory in _directories(node_dir / "snapshots"):
        yield Holder(directory, snapshot_chain(directory), _born_ns(directory / _SNAPSHOT_RECORD))


def spare_holders(node_dir: Path) -> Iterator[Holder]:
    """Every directory of a machine that no sandbox has yet. Raises UnreadableRecord."""
    for directory in _directories(node_dir / "warm"):
        yield Holder(directory, sandbox_chain(directory), _born_ns(directory / "op.lock"))


def sandbox_chain(directory: Path) -> tuple[str, ...]:
    """What the record of a sandbox refers to, nothing without a record. Raises
    UnreadableRecord."""
    chain = RunDir(directory).chain()
    if chain is None:
        raise UnreadableRecord(str(directory))
    return chain


def snapshot_chain(directory: Path) -> tuple[str, ...]:
    """What the record of a snapshot refers to, nothing without a record. Raises
    UnreadableRecord."""
    path = directory / _SNAPSHOT_RECORD
    record = read_json(path)
    if record is None and path.exists():
        raise UnreadableRecord(str(path))
    try:
        return tuple(record["machine"]["chain"]) if record is not None else ()
    except (KeyError, TypeError) as error:
        raise UnreadableRecord(str(path)) from error


def references(node_dir: Path) -> set[str]:
    """Everything that any record under `node_dir` refers to. Raises UnreadableRecord."""
    found: set[str] = set()
    for holders in (spare_holders, sandbox_holders, snapshot_holders):
        for holder in holders(node_dir):
            found.update(holder.chain)
    return found


def _directories(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def _born_ns(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
