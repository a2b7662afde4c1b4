"""Decides which versions are fetched next, and fetches a few at once, each in a thread of its own.

1. Nobody waits for a fetch: a round says what is missing, and a fetch that ends begins the next. 2.
The account with the fewest fetches is next, and none has all the room. 3. What could not be
fetched leaves nothing on the disk, and is tried again, later each time.
"""
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from app.releases.fetch import Damaged, fetch
from app.releases.tree import Tree, name_of
from objects.store import ObjectMissing, ObjectStore, StoreUnavailable
from services.deploys.edges.staging import Version

log = logging.getLogger(__name__)
AT_ONCE, OF_ONE_OWNER = 4, 2
_RETRY_S, _RETRY_MOST_S = 4.0, 30.0


class FetchQueue:
    """The fetches of this host; `ring` is called at the end of each."""

    def __init__(self, tree: Tree, store: ObjectStore, ring: Callable[[], object]) -> None:
        self._tree, self._store, self._ring = tree, store, ring
        self._lock = threading.Lock()
        self._waiting: list[Version] = []
        self._under_way: set[Version] = set()
        # What could not be fetched: when it is due again, and how long is waited after that (s).
        self._failed: dict[Version, tuple[float, float]] = {}

    def go_on(self, missing: Iterable[Version]) -> None:
        """Fetch what is missing, the most urgent first, and nothing else any more."""
        missing = list(missing)
        with self._lock:
            self._failed = {each: self._failed[each] for each in missing if each in self._failed}
            self._waiting = [each for each in missing if self._is_to_fetch(each)]
            self._begin()

    def _begin(self) -> None:
        """Begin to fetch as far as there is room; the lock is held."""
        while len(self._under_way) < AT_ONCE and (chosen := self._choose(self._waiting)):
            self._waiting.remove(chosen)
            self._under_way.add(chosen)
            threading.Thread(target=self._fetch, args=(chosen,), daemon=True,
                             name=f"fetch-{chosen.slug}").start()

    def _is_to_fetch(self, version: Version) -> bool:
        due_at, _ = self._failed.get(version, (0.0, 0.0))
        return (version not in self._under_way and time.monotonic() >= due_at
                # one that has just ended was missing when the round began
                and not self._tree.has(version.slug, name_of(version.prefix)))

    def _choose(self, waiting: list[Version]) -> Version | None:
        under_way = Counter(each.owner_id for each in self._under_way)
        return min((each for each in waiting if under_way[each.owner_id] < OF_ONE_OWNER),
                   key=lambda each: under_way[each.owner_id], default=None)

    def _fetch(self, version: Version) -> None:
        is_here = False
        try:
            with self._tree.draft() as draft:
                fetch(self._store, version.prefix, draft)
                self._tree.keep(version.slug, name_of(version.prefix), draft)
            is_here = True
        except (StoreUnavailable, ObjectMissing, Damaged, OSError, ValueError) as error:
            log.warning("a version of %s is not here yet: %s", version.slug, error)
        except Exception:
            log.exception("a version of %s is not here yet", version.slug)
        with self._lock:
            self._under_way.remove(version)
            if not is_here:
                _, wait_s = self._failed.get(version, (0.0, _RETRY_S))
                self._failed[version] = time.monotonic() + wait_s, min(2 * wait_s, _RETRY_MOST_S)
            self._begin()
        self._ring()
