"""The directory of an edge from which apps are served, and the change that makes a version live.

    <slug>/<app id>-v<n>-<epoch>/...      the files of a version, `.gz` beside what compresses
    <slug>/release-<n>/cur, prev         links to two versions
    <slug>/live                          a link to a release
    .hosts/<host>                        a link to an app with a name besides its slug
    .drafts, .gone                       what is being fetched, what is to be removed

1. A version is fetched into a directory of another name and renamed when it is whole and on the
disk: after a loss of power too, what has the name of a version is one. 2. A release is made beside
the live one; renaming a new `live` over the old changes both versions at once. 3. All files of a
version have one time, made of its app's id and its number: nginx makes ETags of time and length, so
two versions never share one, and none has that of another app that had the address before. 4. What
goes is renamed at once, however many files it has; `clear` removes them.

Fetches make and keep drafts in threads of their own; one thread does everything else.
"""
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LIVE, CURRENT, PREVIOUS = "live", "cur", "prev"
_NONE, _HOSTS, _DRAFTS, _GONE = ".none", ".hosts", ".drafts", ".gone"
_DRAFT = ".draft-"
# Seconds: apps have their version 0 somewhere in these years, which are over. A version a second
# keeps its files apart.
_EPOCH, _SPREAD_S = 1_000_000_000, 500_000_000
_VERSION = re.compile(r"app_[^/]+-v(\d+)-\d+")


class Tree:
    """The directories of all apps of this host."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in (_NONE, _HOSTS, _DRAFTS, _GONE):
            (root / name).mkdir(mode=0o755, exist_ok=True)
        for draft in root.glob(f"*/{_DRAFT}*"):
            self._discard(draft)

    def has(self, slug: str, name: str) -> bool:
        """True if the version is here, whole."""
        return (self._root / slug / name).is_dir()

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """A new directory to fetch a version into; removed with the block, unless it was kept."""
        path = self._root / _DRAFTS / f"{_DRAFT}{secrets.token_hex(6)}"
        path.mkdir(mode=0o755)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def keep(self, slug: str, name: str, draft: Path) -> None:
        """Let what was fetched be the version."""
        moment = _moment(name)
        for folder, _, files in os.walk(draft):
            os.chmod(folder, 0o755)
            for file in files:
                path = os.path.join(folder, file)
                os.chmod(path, 0o644)
                os.utime(path, (moment, moment))
                _flush(path)
            _flush(folder)
        (self._root / slug).mkdir(mode=0o755, exist_ok=True)
        draft.rename(self._root / slug / name)

    def point(self, slug: str, current: str, previous: str | None) -> None:
        """Serve `current`, and what is missing in it from `previous`, which are both here."""
        app = self._root / slug
        wanted = (f"../{current}", f"../{previous}" if previous else f"../../{_NONE}")
        live = app / LIVE
        if _links(live) == wanted:
            return
        release = app / f"release-{secrets.token_hex(6)}"
        release.mkdir(mode=0o755)
        for link, target in zip((CURRENT, PREVIOUS), wanted):
            (release / link).symlink_to(target)
        old = os.readlink(live) if live.is_symlink() else None
        draft = app / f"{LIVE}.new"
        draft.unlink(missing_ok=True)
        draft.symlink_to(release.name)
        draft.replace(live)
        if old is not None:
            shutil.rmtree(app / old, ignore_errors=True)

    def linked(self, slug: str) -> list[str]:
        """Names of the versions that an app's link leads to."""
        return [Path(target).name for target in _links(self._root / slug / LIVE) or ()]

    def versions(self) -> list[tuple[str, str]]:
        """Slug and name of every version that is here."""
        return [(path.parent.name, path.name) for path in self._root.glob("*/app_*")
                if _VERSION.fullmatch(path.name)]

    def apps(self) -> list[str]:
        """Slugs of all apps that have a directory."""
        return [path.name for path in self._root.iterdir() if not path.name.startswith(".")]

    def name(self, hosts: Mapping[str, str]) -> None:
        """Let each host lead to its app's slug, and no other host to any."""
        names = self._root / _HOSTS
        for link in names.iterdir():
            if hosts.get(link.name) is None or os.readlink(link) != f"../{hosts[link.name]}":
                link.unlink()
        for host, slug in hosts.items():
            if not (names / host).is_symlink():
                (names / host).symlink_to(f"../{slug}")

    def remove(self, slug: str, name: str) -> None:
        """Remove a version that no release names."""
        self._discard(self._root / slug / name)

    def withdraw(self, slug: str) -> None:
        """Serve nothing at an app's address any more; requests get 404 from now on."""
        self._discard(self._root / slug)

    def clear(self) -> None:
        """Free the room of what was removed and withdrawn; in no hurry."""
        for path in (self._root / _GONE).iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def _discard(self, path: Path) -> None:
        path.rename(self._root / _GONE / secrets.token_hex(6))


def name_of(prefix: str) -> str:
    """The directory of a version: the app's id is in it, for a slug may be another app's later."""
    return "-".join(prefix.rstrip("/").split("/")[-2:])


def app_of(name: str) -> str:
    """The app's id in the name of a version's directory."""
    return name.rsplit("-", 2)[0]


def _moment(name: str) -> int:
    """The time of all files of a version, in seconds; the same on every edge."""
    number = int(_VERSION.fullmatch(name)[1])  # type: ignore[index]
    digest = hashlib.sha256(app_of(name).encode()).digest()
    return _EPOCH + int.from_bytes(digest[:8], "big") % _SPREAD_S + number


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _links(live: Path) -> tuple[str, str] | None:
    try:
        return os.readlink(live / CURRENT), os.readlink(live / PREVIOUS)
    except OSError:
        return None
