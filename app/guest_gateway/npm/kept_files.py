"""Says how large the npm cache may grow and what leaves it: a file for each thing that was fetched,
in one directory up to a size, with what is being fetched.

A file appears whole or not at all, also if the host dies. What was used longest ago goes first. The
directory may be lost at any time.
"""
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from app.guest_gateway.npm.packages import Wanted
from services.errors import Unavailable

_LEFT = 0.9


class KeptFiles:
    """The files of one directory; its methods block for as long as a disk does."""

    def __init__(self, directory: Path, bytes_most: int) -> None:
        self._directory, self._most = directory, bytes_most
        self._drafts = directory / "drafts"
        self._drafts.mkdir(parents=True, exist_ok=True)
        for left in self._drafts.iterdir():
            left.unlink()
        # Of the figures: nobody holds it for longer than a sum takes.
        self._lock = threading.Lock()
        # One lists and removes at a time, which takes seconds where there are many files.
        self._removing = threading.Lock()
        self._drafted: dict[str, int] = {}
        self._held = sum(size for _, size, _ in self._files())

    def find(self, wanted: Wanted, age_s: float | None) -> Path | None:
        """The file of what is wanted, if there is one and, unless `age_s` is None, it is not older;
        a tarball has no age."""
        path = self._path(wanted)
        with suppress(FileNotFoundError):
            if wanted.is_tarball:
                os.utime(path)
                return path
            age = time.time() - path.stat().st_mtime
            if age_s is None or age < age_s:
                return path
        return None

    def draft(self) -> IO[bytes]:
        """A file to fetch into, until `drop`."""
        return tempfile.NamedTemporaryFile(dir=self._drafts, delete=False)

    def drop(self, draft: IO[bytes]) -> None:
        """End a draft; it is gone unless it was put."""
        draft.close()
        with suppress(FileNotFoundError):
            os.unlink(draft.name)
        with self._lock:
            self._held -= self._drafted.pop(draft.name, 0)

    def write(self, draft: IO[bytes], piece: bytes) -> None:
        """Add to a draft, and make room for that if need be; raises Unavailable when the drafts
        alone are as large as all may be."""
        with self._lock:
            self._drafted[draft.name] = self._drafted.get(draft.name, 0) + len(piece)
            self._held += len(piece)
        if self._held > self._most:
            with self._removing:
                self._make_room()
            if self._held > self._most:
                raise Unavailable("The registry cache has no room for this now.", retry_after_s=5)
        draft.write(piece)

    def put(self, wanted: Wanted, draft: IO[bytes]) -> Path:
        """Make a draft the file of what is wanted, and make room for it if need be."""
        draft.flush()
        # A host that dies could leave the name without the content: a broken tarball for ever.
        os.fsync(draft.fileno())
        path = self._path(wanted)
        path.parent.mkdir(exist_ok=True)
        # Whoever removes files has listed them: it would miss this one, or remove it for the old
        # one of its name.
        with self._removing:
            size = os.path.getsize(draft.name)
            os.rename(draft.name, path)
            with self._lock:
                self._held += size - self._drafted.pop(draft.name, 0)
            self._make_room(path)
        return path

    def _make_room(self, but: Path | None = None) -> None:
        """Remove what was used longest ago, if there is too much; under `_removing`."""
        if self._held <= self._most:
            return
        files = sorted(self._files())
        with self._lock:
            self._held = sum(size for _, size, _ in files) + sum(self._drafted.values())
        for _, size, path in files:
            if self._held <= self._most * _LEFT:
                break
            if path != but:
                path.unlink(missing_ok=True)
                with self._lock:
                    self._held -= size

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        for path in self._directory.glob("??/*"):
            with suppress(FileNotFoundError):
                found = path.stat()
                yield found.st_mtime, found.st_size, path

    def _path(self, wanted: Wanted) -> Path:
        key = hashlib.sha256(f"{wanted.path} {wanted.accept}".encode()).hexdigest()
        return self._directory / key[:2] / key[2:]
