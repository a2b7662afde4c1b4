"""Which files of a static app an edge also keeps compressed, for browsers that take them so."""
import gzip
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

_KINDS = (".html", ".css", ".js", ".mjs", ".json", ".svg", ".txt", ".xml", ".map", ".wasm",
          ".webmanifest")
_LEAST_BYTES = 1024
_ENDING = ".gz"
# What a file system takes as the name of a file.
_NAME_MOST_BYTES = 255


def compress_all(files: Iterable[tuple[Path, int]]) -> None:
    """Keep what gains by it compressed as well, of all files of a version with their sizes: the
    version's own files come first, so none of them is in the way, and none is lost."""
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
