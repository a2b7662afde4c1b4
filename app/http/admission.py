"""How many threads of this process may wait at a time, so that a call that never waits always finds
one.

A call on the data road waits for a guest and a lifecycle call for a row, for up to an hour; get,
list and most creates take milliseconds. 1. A route about one sandbox waits for its guest, unless
its `admission` says otherwise. 2. Before it runs, and before its body is read, it takes a place in
its admission class; a route whose body says whether it waits takes one by itself (`enter`), and so
does who reads a body that is still being sent (`place_to_read`). 3. If the class is full, or the
caller's share of it, the answer is 503 with Retry-After, at once. 4. The threads that no class may
have are left to calls that never wait.
"""
import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask, current_app, g, request

from app.http.held import held
from app.http.owner_shares import Places
from config.settings import Settings
from services.accounts.principals import Principal
from services.errors import Unavailable

_RETRY_AFTER_S = 2
_EXTENSION = "admission"


class Admission(enum.Enum):
    """The admission classes: what a call waits for."""

    PROMPT = "nothing"
    DATA = "a guest"
    LIFECYCLE = "a row"
    PRESET = "an agent preset"
    STATUS = "a status"


PROMPT, DATA, LIFECYCLE, PRESET, STATUS = Admission
# Parts of the process's threads that each class may hold, and the part of a class that one owner
# may: the rest of the class is for the others, and the rest of the threads (3 of 20) for calls that
# never wait. Who waits for a status has a class apart from lifecycle calls, so that an owner whose
# clients all wait can still put a sandbox to sleep.
_PARTS = {DATA: 7 / 20, LIFECYCLE: 5 / 20, PRESET: 2 / 20, STATUS: 3 / 20}
_OWNERS_PART = 3 / 4


def admission_of(view: Any, rule: str) -> Admission:
    """The class of the view at a rule of the url map: what its route declares, else DATA if it is
    about one sandbox."""
    declared: Admission | None = getattr(view, "admission", None)
    return declared or (DATA if "<sandbox_id>" in rule else PROMPT)


def places_of(threads: int) -> dict[Admission, Places]:
    """The admission classes of a process with that many threads."""
    sizes = {waits: int(threads * part) for waits, part in _PARTS.items()}
    return {waits: Places(size, int(size * _OWNERS_PART)) for waits, size in sizes.items()}


def install(app: Flask, settings: Settings) -> None:
    """Give every request of `app` its place; goes after `credentials.install`, so that a stranger
    takes none, and after `held.install`."""
    app.extensions[_EXTENSION] = places_of(settings.api_threads)

    def enter_declared() -> None:
        if g.get("principal") is None or request.url_rule is None:
            return
        view = current_app.view_functions[request.url_rule.endpoint]
        enter(admission_of(view, request.url_rule.rule))

    app.before_request(enter_declared)


def enter(waits: Admission) -> None:
    """Take a place for the request under way, until its answer has been sent; raises
    Unavailable."""
    if not try_enter(waits):
        raise _full()


def try_enter(waits: Admission) -> bool:
    """As `enter`, for a request that can be answered without waiting; False if there is no
    place."""
    places = _places(waits)
    if places is None:
        return True
    owner = _owner()
    if not places.take(owner):
        return False
    held().callback(places.give_back, owner)
    g.has_place = True
    return True


@contextmanager
def place_to_read() -> Iterator[None]:
    """Hold one of the places of those that wait for a guest, unless the request under way has one:
    it has its thread for as long as its client takes to send the body. Raises Unavailable."""
    places = _places(DATA)
    if places is None or g.get("principal") is None or g.get("has_place"):
        yield
        return
    owner = _owner()
    if not places.take(owner):
        raise _full()
    try:
        yield
    finally:
        places.give_back(owner)


def _places(waits: Admission) -> Places | None:
    """Those of a class; None for one without, and on a host that has no classes."""
    classes: dict[Admission, Places] = current_app.extensions.get(_EXTENSION, {})
    return classes.get(waits)


def _owner() -> str:
    principal: Principal = g.principal
    return principal.account_id


def _full() -> Unavailable:
    return Unavailable("Too many calls are waiting for sandboxes at once; try again in a moment.",
                       retry_after_s=_RETRY_AFTER_S)
