"""Fetches the files of a version from the object store, and compresses those that gain by it."""
import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from objects.store import ObjectMissing, ObjectStore
from services.deploys.prefixes import file_key, list_key

_COMPRESSED = (".html", ".css", ".js", ".mjs", ".json", ".svg", ".txt", ".xml", ".map", ".wasm",
               ".webmanifest")
_WORTH_BYTES = 1024


class Damaged(Exception):
    """The store does not hold what the list of the version says."""


def fetch(store: ObjectStore, prefix: str, target: Path) -> None:
    """Put the files of a version into the empty directory `target`; raises Damaged, ObjectMissing,
    StoreUnavailable."""
    listed = json.loads(b"".join(store.get_stream(list_key(prefix))))
    for entry in listed:
        path = target / entry["path"]
        if not path.resolve().is_relative_to(target.resolve()):
            raise Damaged(f"{prefix} lists {entry['path']}")
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with path.open("wb") as file:
            for piece in _content(store, file_key(prefix, entry["path"]), entry["size_bytes"]):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != entry["sha256"]:
            raise Damaged(f"{file_key(prefix, entry['path'])} is not what was stored")
        if path.suffix.lower() in _COMPRESSED and entry["size_bytes"] >= _WORTH_BYTES:
            _compress(path)


def _content(store: ObjectStore, key: str, size_bytes: int) -> Iterator[bytes]:
    try:
        yield from store.get_stream(key)
    except ObjectMissing as missing:
        if size_bytes:
            raise Damaged(f"{key} is missing") from missing


def _compress(path: Path) -> None:
    with path.open("rb") as source, open(f"{path}.gz", "wb") as target:
        # without name and time: the same content gives the same bytes
        with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed:
            shutil.copyfileobj(source, packed)
