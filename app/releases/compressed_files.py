"""Which files of a static app an edge also keeps compressed, for browsers that take them so.

nginx takes `x.gz` for a compressed `x`. So only what is made here has such a name beside its file:
an app's own files of that ending are in a folder that no app has, as hidden files are not stored.
"""
import gzip
import os
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_KINDS = (".html", ".css", ".js", ".mjs", ".json", ".svg", ".txt", ".xml", ".map", ".wasm",
          ".webmanifest")
_LEAST_BYTES = 1024
_ENDING, _OWN = ".gz", PurePosixPath(".gz")
# What a file system takes as the name of a file.
_NAME_MOST_BYTES = 255


def place_of(path: str) -> PurePosixPath:
    """Where a file of an app is kept, in the directory of its version."""
    return _OWN / path if path.endswith(_ENDING) else PurePosixPath(path)


def compress_all(files: Iterable[tuple[Path, int]]) -> None:
    """Keep what gains by it compressed as well, of all files of a version with their sizes: once
    all are there, so that no directory of theirs is in the way."""
    for path, size_bytes in files:
        packed = path.with_name(path.name + _ENDING)
        is_possible = len(os.fsencode(packed.name)) <= _NAME_MOST_BYTES and not packed.exists()
        if is_possible and is_worth_it(path, size_bytes):
            _compress(path, packed)


def is_worth_it(path: Path, size_bytes: int) -> bool:
    """True of a text that is not tiny; pictures and the like are compressed already."""
    return path.suffix.lower() in _KINDS and size_bytes >= _LEAST_BYTES


def _compress(path: Path, packed: Path) -> None:
    with path.open("rb") as source, packed.open("xb") as target:
        # without name and time: the same content gives the same bytes
        with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as content:
            shutil.copyfileobj(source, content)
