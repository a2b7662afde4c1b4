"""The process `releases`: `python -m app.releases`. It brings this host's directory of apps to what
the rows say, after each change and every few seconds.

1. Versions that are to go live, and those that are live, are fetched. 2. Each app's link is set by
its row. 3. What no row needs is removed, once no link names it. A failure of one app leaves the
others be and nothing on the disk, and is tried again, later each time.
"""
import logging
import signal
import socket
import sys
import threading
import time

from app.releases.fetch import Damaged, fetch
from app.releases.tree import Tree
from config.logging import configure
from config.settings import Settings, get_settings
from models.database import DatabaseFailed, connect
from objects.store import ObjectMissing, ObjectStore, StoreUnavailable
from services.deploys.edges import staging
from services.deploys.edges.listener import Listener

log = logging.getLogger(__name__)
DIRECTORY = "releases"
_ROUND_S, _RETRY_MOST_S = 4.0, 30.0


class Releases:
    """The apps of this host."""

    def __init__(self, settings: Settings) -> None:
        self._edge_id = socket.gethostname()
        self._tree = Tree(settings.data_dir / DIRECTORY)
        self._store = ObjectStore(settings)
        # What the rows know already to be here.
        self._told: set[str] = set()
        # What could not be fetched: when it is due again, and how long is waited after that (s).
        self._failed: dict[str, tuple[float, float]] = {}

    def catch_up(self) -> None:
        """Do all that the rows ask for now; raises DatabaseFailed."""
        staging.seen(self._edge_id)
        self._tree.name(staging.list_hosts())
        # In this order: what goes live in between is in both, not in none.
        coming, apps = staging.list_coming(), staging.list_apps()
        needed = {*coming, *((app.slug, prefix) for app in apps
                             for prefix in (app.live, app.previous) if prefix)}
        prefixes = {prefix for _, prefix in needed}
        self._told &= prefixes
        self._failed = {prefix: due for prefix, due in self._failed.items() if prefix in prefixes}
        here = {(slug, prefix) for slug, prefix in needed if self._has(slug, prefix)}
        for app in apps:
            if (app.slug, app.live) in here:
                previous = app.previous if (app.slug, app.previous) in here else None
                self._tree.point(app.slug, _name(app.live), _name(previous) if previous else None)
        self._remove(apps, needed)

    def _has(self, slug: str, prefix: str) -> bool:
        if not self._tree.has(slug, _name(prefix)) and not self._fetch(slug, prefix):
            return False
        if prefix not in self._told:
            staging.staged(self._edge_id, prefix)
            self._told.add(prefix)
        return True

    def _fetch(self, slug: str, prefix: str) -> bool:
        """Whether it could be fetched; not tried before it is due again."""
        due_at, wait_s = self._failed.get(prefix, (0.0, _ROUND_S))
        if time.monotonic() < due_at:
            return False
        try:
            with self._tree.draft(slug) as draft:
                fetch(self._store, prefix, draft)
                self._tree.keep(slug, _name(prefix), draft)
        except (StoreUnavailable, ObjectMissing, Damaged, OSError, ValueError) as error:
            self._failed[prefix] = time.monotonic() + wait_s, min(2 * wait_s, _RETRY_MOST_S)
            log.warning("a version of %s is not here yet: %s", slug, error)
            return False
        self._failed.pop(prefix, None)
        return True

    def _remove(self, apps: list[staging.App], needed: set[tuple[str, str]]) -> None:
        known = {slug for slug, _ in needed}
        for slug in self._tree.apps():
            if slug not in known:
                self._tree.withdraw(slug)
        names = {(slug, _name(prefix)) for slug, prefix in needed}
        for slug, name in self._tree.versions():
            if (slug, name) not in names:
                self._tree.remove(slug, name)


def _name(prefix: str) -> str:
    """The directory of a version: the app's id is in it, for a slug may be another app's later."""
    return "-".join(prefix.rstrip("/").split("/")[-2:])


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    settings = get_settings()
    configure(settings.log_level)
    connect(settings.database_url, pool_size=settings.db_pool_size, application="svc-releases")
    changed, ended = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        ended.set()
        changed.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    releases = Releases(settings)
    Listener(changed.set).start()
    log.info("releases is up")
    while not ended.is_set():
        changed.clear()
        try:
            releases.catch_up()
        except DatabaseFailed as error:
            log.warning("what is served stays as it is: %s", type(error).__name__)
        changed.wait(_ROUND_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
