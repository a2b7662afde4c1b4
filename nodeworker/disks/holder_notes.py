"""Notes of which sandboxes and snapshots named a frozen disk layer in their records.

A note only says where to look: who wants to know whether a layer is still needed reads the records
of the noted holders, instead of everybody's. It proves nothing. It may be missing after a power
failure, or for holders that are older than notes, and it may stay behind after a crash. So a layer
without a note is never taken for one that nothing refers to.
"""
import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path


class HolderNotes:
    """Empty files `<directory>/<layer>/<kind of holder>.<its name>`, where a holder is a directory
    `<kind>/<name>` of the node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, chain: Iterable[str], holder: Path) -> None:
        """Note that the record of `holder` names, or is about to name, the layers of `chain`."""
        for reference in chain:
            if reference.startswith("layer:"):
                path = self._of(reference)
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
                (path / _note(holder)).touch(mode=0o600)

    def remove(self, reference: str, holder: Path) -> None:
        """Take back that `holder` needs the layer; not noted: no-op."""
        with contextlib.suppress(FileNotFoundError):
            (self._of(reference) / _note(holder)).unlink()

    def holders(self, reference: str) -> Iterator[tuple[str, str]]:
        """Kind and name of each noted holder of the layer, read as they are asked for."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._of(reference)) as entries:
            for entry in entries:
                kind, _, name = entry.name.partition(".")
                yield kind, name

    def forget(self, reference: str) -> None:
        """Remove all notes about a layer that is to be deleted."""
        shutil.rmtree(self._of(reference), ignore_errors=True)

    def _of(self, reference: str) -> Path:
        return self._directory / reference.partition(":")[2]


def _note(holder: Path) -> str:
    return f"{holder.parent.name}.{holder.name}"
