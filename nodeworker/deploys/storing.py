"""Stores the files of a static app, one object each, from the tar that its builder sends.

The output is a stranger's, and so is the tar: 1. Only plain files are taken, under names that stay
below the output. 2. There is a most for their number and size, which counts what is left out, too,
so that nothing can be sent for ever. 3. Between two files only so much is read as an honest tar
has there: a header that says it is long is not taken into memory. 4. The list of all files is the
last object stored: a version without it is not complete.
"""
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import IO

from config.media_types import media_type
from config.static_file_ages import cache_control
from objects.store import ObjectStore
from services.deploys.projects.manifest import BadProject
from services.deploys.version_prefixes import file_key, list_key

# In bytes; no file system takes a longer name.
_PATH_MOST, _NAME_MOST, _SPOOL = 512, 255, 4 * 1024 * 1024
_INDEX = "index.html"
# What a tar has between the contents of two files at most: padding, headers, a map of holes.
_HEADERS_BYTES = 256 * 1024
# What is said of an entry beside its header: a path and the target of a link, of 4 KiB each, as
# many attributes as a file of ext4 has room for, and some numbers. `tarfile` reads it with a
# regular expression that takes the square of it, while no other thread of the process runs.
_SAID_TYPES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_SAID_MOST = 13 * 1024
# So many times as much as is taken may be left out, such as directories, links, hidden files.
_LEFT_OUT = 4


@dataclass(frozen=True)
class StoredFile:
    """A file of a version; `path` is relative to its root."""

    path: str
    size_bytes: int
    sha256: str


def store(objects: ObjectStore, prefix: str, tar: Iterable[bytes], *, files_most: int,
          bytes_most: int) -> list[StoredFile]:
    """Store what the tar holds under `prefix`; returns its files. Raises BadProject,
    StoreUnavailable, and what the iteration raises."""
    stored: dict[str, StoredFile] = {}
    room, reader = _Room(files_most, bytes_most), _Reader(tar)
    try:
        with tarfile.open(fileobj=reader, mode="r|", tarinfo=_Entry) as archive:
            for entry in archive:
                path = _path(entry.name) if entry.isreg() else None
                room.take(entry.size, is_left_out=path is None)
                reader.allow(_content_bytes(entry) + _HEADERS_BYTES)
                # Otherwise it remembers every entry.
                archive.members.clear()  # type: ignore[attr-defined]
                if path is None and not entry.issparse():
                    continue
                source = archive.extractfile(entry)
                assert source is not None
                if path is not None:
                    stored[path] = _put(objects, file_key(prefix, path), path, source)
                while source.read(_SPOOL):
                    pass
                # Of a sparse file less was read than was allowed.
                reader.allow(_HEADERS_BYTES)
        # The builder says at its very end whether it could read everything.
        while reader.read(_HEADERS_BYTES):
            pass
    except (tarfile.TarError, _TooMuch, ValueError) as error:
        raise BadProject("The builder sent a broken archive of the output.") from error
    folders = {str(parent) for path in stored for parent in PurePosixPath(path).parents}
    if clash := folders & set(stored):
        raise BadProject(f"{min(clash)} is both a file and a directory of the output.")
    if _INDEX not in stored:
        raise BadProject(f"The output has no {_INDEX}.")
    listed = sorted(stored.values(), key=lambda file: file.path)
    text = json.dumps([asdict(file) for file in listed], separators=(",", ":")).encode()
    objects.put_stream(list_key(prefix), [text])
    return listed


class _Room:
    """What an output may still have."""

    def __init__(self, files_most: int, bytes_most: int) -> None:
        self._files, self._bytes = files_most, bytes_most
        self._files_out, self._bytes_out = files_most * _LEFT_OUT, bytes_most * _LEFT_OUT
        self._texts = (f"The output has more than {files_most} files.",
                       f"The output is larger than {bytes_most >> 20} MB.")

    def take(self, size: int, *, is_left_out: bool) -> None:
        """Count an entry; raises BadProject for one too many, ValueError for a wrong size."""
        if size < 0:
            raise ValueError("a size below 0")
        if is_left_out:
            self._files_out, self._bytes_out = self._files_out - 1, self._bytes_out - size
        else:
            self._files, self._bytes = self._files - 1, self._bytes - size
        for left, text in zip((min(self._files, self._files_out),
                               min(self._bytes, self._bytes_out)), self._texts, strict=True):
            if left < 0:
                raise BadProject(text)


class _Entry(tarfile.TarInfo):
    """An entry whose header is whole: `tarfile` takes a broken one, and a tar that is cut off
    between two, for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Entry":
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _SAID_TYPES and entry.size > _SAID_MOST:
            raise tarfile.ReadError("more is said of an entry than there can be")
        return entry

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Entry":
        try:
            return super().fromtarfile(archive)
        except tarfile.HeaderError as error:
            if isinstance(error, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
                raise
            raise tarfile.ReadError(str(error)) from error


def _content_bytes(entry: tarfile.TarInfo) -> int:
    """What of an entry follows its headers, at most; links and devices may say a size and have
    none."""
    is_known = entry.type in tarfile.SUPPORTED_TYPES
    return entry.size if entry.isreg() or not is_known else 0


def _path(name: str) -> str | None:
    """The path of an entry below the root; None for one that is not served: hidden, or with a name
    that no URL or file system of ours should have."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    path = "/".join(parts)
    if not parts or name.startswith("/") or len(path.encode("utf-8", "replace")) > _PATH_MOST:
        return None
    if any(part.startswith(".") and part != ".well-known" for part in parts):
        return None
    if any(len(part.encode("utf-8", "replace")) > _NAME_MOST for part in parts):
        return None
    return path if path.isprintable() and "\\" not in path else None


def _put(objects: ObjectStore, key: str, path: str, source: IO[bytes]) -> StoredFile:
    digest, size = hashlib.sha256(), 0

    def pieces() -> Iterator[bytes]:
        nonlocal size
        while piece := source.read(_SPOOL):
            digest.update(piece)
            size += len(piece)
            yield piece

    objects.put_stream(key, pieces(), {"ContentType": media_type(path),
                                       "CacheControl": cache_control(path)})
    return StoredFile(path, size, digest.hexdigest())


class _TooMuch(Exception):
    """More was read than there should be before the next entry."""


class _Reader(io.RawIOBase):
    """An iteration of bytes as a file to read from, as far as is allowed."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._kept = iter(chunks), b""
        self._left = _HEADERS_BYTES

    def allow(self, size: int) -> None:
        """From here on as many bytes may be read."""
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        if not self._kept:
            self._kept = next(self._chunks, b"")
        taken = self._kept[:len(buffer)]
        self._left -= len(taken)
        if self._left < 0:
            raise _TooMuch
        buffer[:len(taken)] = taken
        self._kept = self._kept[len(taken):]
        return len(taken)
