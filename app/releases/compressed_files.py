"""Which files of a static app an edge also keeps compressed, for browsers that take them so."""
import gzip
import shutil
from pathlib import Path

_KINDS = (".html", ".css", ".js", ".mjs", ".json", ".svg", ".txt", ".xml", ".map", ".wasm",
          ".webmanifest")
_LEAST_BYTES = 1024


def is_worth_it(path: Path, size_bytes: int) -> bool:
    """True of a text that is not tiny; pictures and the like are compressed already."""
    return path.suffix.lower() in _KINDS and size_bytes >= _LEAST_BYTES


def compress(path: Path) -> None:
    """Write the file with gzip beside itself, as `<name>.gz`."""
    with path.open("rb") as source, open(f"{path}.gz", "wb") as target:
        # without name and time: the same content gives the same bytes
        with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed:
            shutil.copyfileobj(source, packed)
