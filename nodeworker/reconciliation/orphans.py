"""Decides when what is on the host without a row, or a row without anything on the host, is
believed to be so: what is removed or stopped then is gone for good.

1. It has been seen for a grace period: a create may be about to commit. 2. It is not one of too
many at once: then it is our view that is wrong, and a person looks. 3. What has a row that says
that it is done with goes whatever its number, some at a time. Of what was seen before nothing is
remembered but since when.
"""
import logging
import time
from collections.abc import Collection

from config.settings import Settings

log = logging.getLogger(__name__)
_AT_A_TIME = 20


class SeenForLong:
    """What one reconciler has seen, and since when."""

    def __init__(self, settings: Settings) -> None:
        self._grace_s, self._brake = settings.orphan_grace_s, settings.orphan_brake
        self._first_seen: dict[str, float] = {}

    def for_long(self, what: str, orphans: set[str]) -> list[str]:
        """Those seen for longer than the grace period; none at all if they are too many. `what`
        they are keeps kinds apart."""
        for_long = self._past_grace(what, orphans)
        if self.are_too_many(for_long):
            log.error("%d %s look orphaned at once; removing none. Is this the right database?",
                      len(for_long), what)
            return []
        return for_long

    def some_for_long(self, what: str, done_with: set[str]) -> list[str]:
        """Some of those that have a row and were seen for longer than the grace period."""
        return self._past_grace(what, done_with)[:_AT_A_TIME]

    def _past_grace(self, what: str, orphans: set[str]) -> list[str]:
        present = time.monotonic()
        for key in [
                key for key in self._first_seen
                if key.startswith(what) and key[len(what) + 1:] not in orphans
        ]:
            del self._first_seen[key]
        for orphan in orphans:
            self._first_seen.setdefault(f"{what}/{orphan}", present)
        return sorted(orphan for orphan in orphans
                      if present - self._first_seen[f"{what}/{orphan}"] >= self._grace_s)

    def are_too_many(self, orphans: Collection[str]) -> bool:
        """Whether nothing is believed of so many."""
        return len(orphans) > self._brake
