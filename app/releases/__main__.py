"""The process `releases`: `python -m app.releases`. It brings this host's directory of apps to what
the rows say, after each change and every few seconds.

1. Each app's link is set by its row. 2. What no row needs goes, once no link names it. 3. What is
here is told, and versions that are to go live, or are live, are fetched, beside the rounds: a large
one delays no other app. A failure of one app leaves the others be.
"""
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from app.releases.fetch_queue import FetchQueue
from app.releases.tree import Tree, app_of, name_of
from config.logging import configure
from config.settings import Settings, get_settings
from models.database import DatabaseFailed, connect
from objects.store import ObjectStore
from services.deploys.edges import staging
from services.deploys.edges.listener import Listener
from services.deploys.edges.staging import Version

log = logging.getLogger(__name__)
DIRECTORY = "releases"
_ROUND_S = 4.0


class Releases:
    """The apps of this host. `ring` is called when a round has something to do."""

    def __init__(self, settings: Settings, ring: Callable[[], object]) -> None:
        self._edge_id = socket.gethostname()
        self._tree = Tree(settings.data_dir / DIRECTORY)
        self._queue = FetchQueue(self._tree, ObjectStore(settings), ring)
        # What the rows know already to be here.
        self._told: set[Version] = set()
        self._is_to_clear = threading.Event()
        threading.Thread(target=self._clear, name="clear", daemon=True).start()

    def catch_up(self) -> None:
        """Do all that the rows ask for now, without waiting for what is not here yet; raises
        DatabaseFailed."""
        began_at = staging.begin_round()
        hosts = staging.list_hosts()
        with _alone("names of apps"):
            self._tree.name(hosts)
        # In this order: what goes live in between is in both, not in none.
        coming, apps = staging.list_coming(), staging.list_apps()
        # A dict keeps them in order, the most urgent first.
        needed = dict.fromkeys((
            *coming, *(Version(app.slug, app.owner_id, app.live) for app in apps),
            *(Version(app.slug, app.owner_id, app.previous) for app in apps if app.previous)))
        here = {each for each in needed if self._tree.has(each.slug, name_of(each.prefix))}
        self._point(apps, {each.prefix for each in here})
        self._remove(apps, needed)
        self._told &= here
        for each in here - self._told:
            staging.staged(self._edge_id, each.prefix)
            self._told.add(each)
        staging.caught_up(self._edge_id, began_at)
        self._queue.go_on(each for each in needed if each not in here)

    def _point(self, apps: list[staging.App], here: set[str]) -> None:
        for app in apps:
            if app.live in here:
                previous = name_of(app.previous) if app.previous in here else None
                with _alone(app.slug):
                    self._tree.point(app.slug, name_of(app.live), previous)

    def _remove(self, apps: list[staging.App], needed: Collection[Version]) -> None:
        slugs = {each.slug for each in needed}
        for slug in self._tree.apps():
            if slug not in slugs:
                with _alone(slug):
                    self._tree.withdraw(slug)
        names = {(each.slug, name_of(each.prefix)) for each in needed}
        # An app goes on with what its link names until its live version is here.
        names.update((app.slug, name) for app in apps for name in self._tree.linked(app.slug)
                     if app_of(name) == app_of(name_of(app.live)))
        for slug, name in self._tree.versions():
            if (slug, name) not in names:
                with _alone(slug):
                    self._tree.remove(slug, name)
        self._is_to_clear.set()

    def _clear(self) -> None:
        while True:
            self._is_to_clear.clear()
            self._tree.clear()
            self._is_to_clear.wait()


@contextmanager
def _alone(what: str) -> Iterator[None]:
    """What the disk refuses here is tried again in the next round, and keeps nothing else from
    being done in this one."""
    try:
        yield
    except OSError as error:
        log.warning("%s: the directory is not what the rows say: %s", what, error)


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
    releases = Releases(settings, changed.set)
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
