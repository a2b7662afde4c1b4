"""Reads what a guest has replicated: which files of the store a database is made of, and the
database from them.

A guest wrote all of it, so it is hostile. 1. The files are fetched here, with the operator's key,
up to a size. 2. Litestream makes the database of them in a directory that is its whole world, under
an account of its own, without any key. 3. A database counts once its integrity was checked. 4. All
that are made at a time leave the floor of the disk: each is promised its part before it begins.
"""
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from config.settings import Settings
from nodeworker.disks.reserve_blocks import MIB
from objects.store import ObjectMissing, ObjectStore, StoredObject
from services.errors import Unavailable

PROGRAM = Path(sys.executable).with_name("litestream")
_NAME = re.compile(r"(\d{4})/([0-9a-f]{16})-([0-9a-f]{16})\.ltx", re.ASCII)
# What a guest may have stored: far above what it replicates in a year, and in a database.
_OBJECTS_MOST, _USED_MOST, _BYTES_MOST = 200_000, 20_000, 64 * 1024 ** 3
_FETCHERS, _TRIES, _RESTORE_S, _MEMORY_MOST = 8, 3, 300, 2 * 1024 ** 3
# A page becomes at most so many times as large as it is stored, which is the most that LZ4 takes
# off any; and what SQLite has beside a database.
_GROWS, _BESIDE_BYTES = 256, MIB
# The files may take that part of what one is promised, the rest is for what is made of them.
_FILES_PART = 3
# What each database that is being made may take of the disk, by its directory.
_promised: dict[Path, int] = {}
_promising = threading.Lock()
# In the node's directory.
_SCRATCH = ".databases"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_CONFIG = '{"dbs": [{"path": "/db", "replica": {"type": "file", "path": "/replica"}}]}'


class ReplicaBroken(Exception):
    """What the prefix holds makes no database; the text is for operators."""


@dataclass(frozen=True)
class Piece:
    """A file of the replica: the transactions from `first` to `last`, merged `level` times."""

    key: str
    level: int
    first: int
    last: int
    size_bytes: int

    @property
    def name(self) -> str:
        """Its path in a replica that is a directory."""
        return f"ltx/{self.level}/{self.first:016x}-{self.last:016x}.ltx"


def pieces(prefix: str, objects: Iterable[StoredObject]) -> list[Piece]:
    """The files of a replica among objects; raises ReplicaBroken if they are too many. Pure."""
    found = []
    for number, stored in enumerate(objects):
        if number >= _OBJECTS_MOST:
            raise ReplicaBroken(f"more than {_OBJECTS_MOST} objects")
        if match := _NAME.fullmatch(stored.key[len(prefix):]):
            level, first, last = match.groups()
            found.append(Piece(stored.key, int(level), int(first, 16), int(last, 16),
                               stored.size_bytes))
    return found


def plan(found: Iterable[Piece], last: int | None) -> list[Piece]:
    """The fewest files that make the database as it was after transaction `last`, or as late as
    there is; raises ReplicaBroken if they do not reach that far, or are too many. Pure."""
    usable = [piece for piece in found if piece.first <= piece.last
              and (last is None or piece.last <= last)]
    # Looked at once each, with the next in order at the end: a guest may have stored very many.
    usable.sort(key=lambda piece: piece.first, reverse=True)
    chosen: list[Piece] = []
    reached, farthest = 0, Piece("", 0, 0, 0, 0)
    while True:
        while usable and usable[-1].first <= reached + 1:
            # A snapshot begins with the first transaction, so it wins wherever it reaches farthest.
            farthest = max(farthest, usable.pop(), key=lambda piece: (piece.last, piece.level))
        if farthest.last <= reached:
            break
        chosen.append(farthest)
        reached = farthest.last
    if len(chosen) > _USED_MOST:
        raise ReplicaBroken(f"its database is in more than {_USED_MOST} files")
    if not chosen or (last is not None and reached != last):
        raise ReplicaBroken(f"the files reach transaction {reached} of {last}")
    return chosen


def scratch(settings: Settings) -> TemporaryDirectory[str]:
    """A directory for a database that is made on this host, gone at the end of a `with`."""
    room = settings.node_dir / _SCRATCH
    room.mkdir(mode=0o700, exist_ok=True)
    return TemporaryDirectory(dir=room)


def remove_left_behind(settings: Settings) -> None:
    """Remove what workers that were killed have left of databases; nobody else may be at one."""
    shutil.rmtree(settings.node_dir / _SCRATCH, ignore_errors=True)


def check_room(settings: Settings, prefix: str) -> None:
    """Raises Unavailable if the files of `prefix` have no room here now; StoreUnavailable."""
    found = pieces(prefix, ObjectStore(settings).list_objects(prefix))
    size_bytes = 0
    with suppress(ReplicaBroken):  # as whoever makes the database of it will say
        size_bytes = sum(each.size_bytes for each in plan(found, None)) if found else 0
    with _promising:
        if size_bytes > _most_bytes(settings, settings.node_dir) // _FILES_PART:
            raise _no_room()


def _most_bytes(settings: Settings, directory: Path) -> int:
    """The most that one may be promised: a part of what is above the floor of the disk and promised
    to nobody. Raises Unavailable."""
    free = (shutil.disk_usage(directory).free - settings.disk_floor_mb * MIB
            - sum(_promised.values()))
    if free <= 0:
        raise _no_room()
    return free // 4 * 3


def _no_room() -> Unavailable:
    return Unavailable("The disk of this node has no room for the database at present.",
                       retry_after_s=10)


@contextmanager
def promise(settings: Settings, directory: Path, size_bytes: int) -> Iterator[int]:
    """The most bytes that a database may have that is made in `directory` of files of `size_bytes`,
    which come there as well. Raises ReplicaBroken for more than any may have, and Unavailable where
    it is the disk that has no room: also in place of a ReplicaBroken inside, if that is what kept
    the database small."""
    if size_bytes > _BYTES_MOST:
        raise ReplicaBroken(f"its files have {size_bytes} bytes")
    with _promising:
        most = _most_bytes(settings, directory)
        taken = min(most, size_bytes * (1 + _GROWS) + _BESIDE_BYTES)
        _promised[directory] = taken
    try:
        if size_bytes > most // _FILES_PART:
            raise _no_room()
        yield min(_BYTES_MOST, taken - size_bytes)
    except ReplicaBroken as error:
        if taken == most:
            raise _no_room() from error
        raise
    finally:
        with _promising:
            del _promised[directory]


def holds_any(settings: Settings, prefix: str) -> bool:
    """True if a guest has stored any of a database there; raises StoreUnavailable."""
    return any(_NAME.fullmatch(each.key[len(prefix):])
               for each in ObjectStore(settings).list_objects(prefix))


def restore(settings: Settings, prefix: str, target: Path, last: int | None) -> bool:
    """Make the database of `prefix` at `target`, in place of what is there; False, and nothing at
    `target`, if the prefix holds nothing and no transaction is asked for. Raises ReplicaBroken,
    StoreUnavailable, Unavailable for want of disk space."""
    store = ObjectStore(settings)
    for left in reversed(range(_TRIES)):
        found = pieces(prefix, store.list_objects(prefix))
        if not found and last is None:
            return False
        with TemporaryDirectory(prefix=".restoring-", dir=target.parent) as directory:
            room = Path(directory)
            try:
                chosen = plan(found, last)
                with promise(settings, room, sum(each.size_bytes for each in chosen)) as most:
                    _fetch(store, chosen, room / "replica")
                    _run(settings, room, last, most)
                    os.replace(room / "out" / "db", target)
                return True
            except ObjectMissing as error:
                # The guest merged files, and removed those it had merged, after the list was made.
                if not left:
                    raise ReplicaBroken("files go as they are fetched") from error
    raise AssertionError("a try ends the loop")


def _fetch(store: ObjectStore, chosen: list[Piece], replica: Path) -> None:
    """Bring files into the directory `replica`; raises ObjectMissing, ReplicaBroken,
    StoreUnavailable."""
    def fetch(piece: Piece) -> None:
        path, taken = replica / piece.name, 0
        with path.open("wb") as file:
            for chunk in store.get_stream(piece.key):
                taken += len(chunk)
                if taken > piece.size_bytes:
                    raise ReplicaBroken("a file grows as it is fetched")
                file.write(chunk)

    for piece in chosen:
        (replica / piece.name).parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_FETCHERS, "restore") as threads:
        list(threads.map(fetch, chosen))


def _run(settings: Settings, room: Path, last: int | None, most_bytes: int) -> None:
    """Have Litestream make `out/db`, of at most `most_bytes`, of `replica` in `room`; raises
    ReplicaBroken."""
    account = settings.vm_uid_base - 1
    (room / "config.yml").write_text(_CONFIG)
    shutil.copyfile(PROGRAM, room / "litestream")
    (room / "litestream").chmod(0o755)
    (room / "out").mkdir()
    os.chown(room / "out", account, account)
    for path in (room, *room.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
        elif path.name != "litestream":
            path.chmod(0o644)
    command = [
        "prlimit", f"--fsize={most_bytes}", f"--data={_MEMORY_MOST}", "--nofile=256", "--core=0",
        "--", "chroot", f"--userspec={account}:{account}", "--groups=", str(room),
        "/litestream", "restore", "-config", "/config.yml", "-no-expand-env", "-o", "/out/db",
        "-integrity-check", "quick"]
    if last is not None:
        command += ["-txid", f"{last:016x}"]
    try:
        done = subprocess.run([*command, "/db"], env={"PATH": _PATH, "GOMEMLIMIT": "512MiB"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=_RESTORE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ReplicaBroken(f"not restored within {_RESTORE_S} s") from error
    made = room / "out" / "db"
    if done.returncode or made.is_symlink() or not made.is_file():
        raise ReplicaBroken(done.stdout[-500:].decode(errors="replace"))
    os.chown(made, 0, 0)
    made.chmod(0o600)
