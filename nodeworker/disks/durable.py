"""Small records and directories that are either the old or the new version after a crash, never
half of one."""
import json
import os
import secrets
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

# The blocks of the largest sparse files are freed in seconds.
_OLD_S = 3600.0
# One thread: deletions must not compete with work that somebody waits for.
_deletions = ThreadPoolExecutor(max_workers=1, thread_name_prefix="deletion")


def sync_directory(directory: Path) -> None:
    """Flush the names in `directory`, so that a rename or an unlink in it survives a power
    failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Flush the contents of `path` to stable storage, whoever wrote them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, content: bytes, *, durable: bool = True, named: bool = True) -> None:
    """Replace `path` (mode 0600) in one step; with `durable` it survives a power failure, else only
    the death of processes. Without `named` a power failure may bring the old version back, whole,
    until the next durable write in the same directory."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:  # writes all of it or raises, on a full disk too
            file.write(content)
            file.flush()
            if durable:
                os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable and named:
        sync_directory(path.parent)


def write_json(path: Path, record: dict[str, Any], *, durable: bool = True,
               named: bool = True) -> None:
    """`write_atomic` of a JSON object."""
    write_atomic(path, json.dumps(record, sort_keys=True).encode(), durable=durable, named=named)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None if it is missing or not whole (a write that a power failure
    cut)."""
    try:
        record = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def remove_tree(directory: Path, trash: Path) -> None:
    """Make `directory` disappear in one step (rename into `trash`); its blocks are freed in the
    background, for which large sparse files can take seconds. Both are on one file system. Nothing
    there: no-op."""
    trash.mkdir(parents=True, exist_ok=True, mode=0o700)
    doomed = trash / f"{directory.name}.{secrets.token_hex(4)}"
    try:
        os.rename(directory, doomed)
    except FileNotFoundError:
        return
    _deletions.submit(shutil.rmtree, doomed, ignore_errors=True)


def empty_trash(trash: Path) -> None:
    """Delete all that a crash left between the rename and the deletion of `remove_tree`, or that
    others put aside there."""
    if trash.is_dir():
        for doomed in trash.iterdir():
            shutil.rmtree(doomed, ignore_errors=True)


def empty_old_trash(trash: Path) -> None:
    """Delete what `remove_tree` has put there so long ago that nobody is at it any more."""
    for doomed in list_old(trash, "*." + "[0-9a-f]" * 8):
        shutil.rmtree(doomed, ignore_errors=True)


def list_old(trash: Path, pattern: str) -> list[Path]:
    """What was put into `trash` under a name of this `pattern` so long ago that nobody is at it any
    more."""
    found = []
    for path in trash.glob(pattern):
        with suppress(FileNotFoundError):
            # The rename is what changed it last.
            if time.time() - path.stat().st_ctime > _OLD_S:
                found.append(path)
    return found
