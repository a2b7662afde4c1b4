"""Fetches the files of a version from the object store, and compresses those that gain by it."""
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from app.releases.compressed_files import compress_all, place_of
from objects.store import ObjectMissing, ObjectStore
from services.deploys.version_prefixes import file_key, list_key


class Damaged(Exception):
    """The store does not hold what the list of the version says."""


def fetch(store: ObjectStore, prefix: str, target: Path) -> None:
    """Put the files of a version into the empty directory `target`; raises Damaged, ObjectMissing,
    StoreUnavailable."""
    listed = json.loads(b"".join(store.get_stream(list_key(prefix))))
    for entry in listed:
        path = target / place_of(entry["path"])
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
    compress_all((target / place_of(entry["path"]), entry["size_bytes"]) for entry in listed)


def _content(store: ObjectStore, key: str, size_bytes: int) -> Iterator[bytes]:
    try:
        yield from store.get_stream(key)
    except ObjectMissing as missing:
        if size_bytes:
            raise Damaged(f"{key} is missing") from missing
