"""How many threads of this process may wait at a time, so that a call that never waits always finds
one.

A call on the data road waits for a guest and a lifecycle call for a row, for up to an hour; get,
list and create take milliseconds. 1. A route about one sandbox waits for its guest, unless its
`admission` says otherwise. 2. Before it runs, and before its body is read, it takes a place in its
admission class. 3. If the class is full, or the caller's share of it, the answer is 503 with
Retry-After, at once. 4. The threads that no class may have are left to calls that never wait.
"""
import enum
import threading
from collections import Counter
from typing import Any

from flask import Flask, current_app, g, request

from app.http.held import held
from config.settings import Settings
from services.errors import Unavailable

_RETRY_AFTER_S = 2


class Admission(enum.Enum):
    """The admission classes: what a call waits for."""

    PROMPT = "nothing"
    DATA = "a guest"
    LIFECYCLE = "a row"


PROMPT, DATA, LIFECYCLE = Admission
# Parts of the process's threads that each class may hold, and the part of a class that one owner
# may: the rest of the class is for the others, and the rest of the threads (an eighth) for calls
# that never wait.
_PARTS = {DATA: 4 / 8, LIFECYCLE: 3 / 8}
_OWNERS_PART = 3 / 4


def admission_of(view: Any, rule: str) -> Admission:
    """The class of the view at a rule of the url map: what its route declares, else DATA if it is
    about one sandbox."""
    declared: Admission | None = getattr(view, "admission", None)
    return declared or (DATA if "<sandbox_id>" in rule else PROMPT)


class Places:
    """Room for the calls of all owners, counted in places; one owner may hold `share` of its
    `capacity`."""

    def __init__(self, capacity: int, share: int) -> None:
        self.capacity, self.share = max(1, capacity), max(1, share)
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

        self._total = 0

    def take(self, owner: str, count: int = 1) -> bool:
        """Take places for `owner`; False, and nothing taken, when there are not as many left."""
        with self._lock:
            if self._held[owner] + count > self.share or self._total + count > self.capacity:
                return False
            self._held[owner] += count
            self._total += count
            return True

    def give_back(self, owner: str, count: int = 1) -> None:
        """End what `take` began."""
        with self._lock:
            self._held[owner] -= count
            self._total -= count
            if not self._held[owner]:
                del self._held[owner]


def places_of(threads: int) -> dict[Admission, Places]:
    """The admission classes of a process with that many threads."""
    sizes = {waits: int(threads * part) for waits, part in _PARTS.items()}
    return {waits: Places(size, int(size * _OWNERS_PART)) for waits, size in sizes.items()}


def install(app: Flask, settings: Settings) -> None:
    """Give every request of `app` its place; goes after `credentials.install`, so that a stranger
    takes none, and after `held.install`."""
    classes = places_of(settings.api_threads)

    def enter() -> None:
        principal = g.get("principal")
        if principal is None or request.url_rule is None:
            return
        view = current_app.view_functions[request.url_rule.endpoint]
        places = classes.get(admission_of(view, request.url_rule.rule))
        if places is None:
            return
        owner = principal.owner.id if principal.owner else principal.subject
        if not places.take(owner):
            raise Unavailable(
                "Too many calls are waiting for sandboxes at once; try again in a moment.",
                retry_after_s=_RETRY_AFTER_S)
        held().callback(places.give_back, owner)

    app.before_request(enter)
