"""The kill switch: an operator ends all calls, those of an owner or those to an upstream.

Rows, so that every gateway sees them; each process reads them at most once a second. What is under
way goes on.
"""
import enum
import threading
import time
from dataclasses import dataclass
from datetime import datetime

from models.database import connection
from models.usage import LlmSwitch
from services.errors import Unavailable

_KEEP_S = 1.0
RETRY_AFTER_S = 60


class Scope(str, enum.Enum):
    """What is switched off; ALL has no name."""

    ALL = "all"
    OWNER = "owner"
    UPSTREAM = "upstream"


@dataclass(frozen=True)
class SwitchedOff:
    """What is off, since when and why; `name` is an owner's id or an upstream's name."""

    scope: Scope
    name: str
    reason: str
    created_at: datetime


def switch_off(scope: Scope, name: str = "", reason: str = "") -> None:
    """End calls from now on; off already: the new reason holds."""
    with connection():
        LlmSwitch.insert(scope=scope.value, name=name, reason=reason).on_conflict(
            conflict_target=(LlmSwitch.scope, LlmSwitch.name),
            preserve=(LlmSwitch.reason,)).execute()


def switch_on(scope: Scope, name: str = "") -> bool:
    """Allow calls again; False if nothing was off."""
    with connection():
        gone = LlmSwitch.delete().where((LlmSwitch.scope == scope.value) & (LlmSwitch.name == name))
        return bool(gone.execute())


def list_off() -> list[SwitchedOff]:
    """What is off now."""
    with connection():
        rows = list(LlmSwitch.select().order_by(LlmSwitch.scope, LlmSwitch.name))
    return [SwitchedOff(Scope(row.scope), row.name, row.reason, row.created_at) for row in rows]


class Switches:
    """The switches as one process knows them, at most a second old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._off: frozenset[tuple[Scope, str]] = frozenset()

    def check(self, owner_id: str) -> None:
        """Raises Unavailable if all calls are off, or those of this owner."""
        off = self._present()
        if (Scope.ALL, "") in off:
            raise Unavailable("The operator has switched the LLM proxy off.",
                              retry_after_s=RETRY_AFTER_S)
        if (Scope.OWNER, owner_id) in off:
            raise Unavailable("The operator has switched the LLM proxy off for this account.",
                              retry_after_s=RETRY_AFTER_S)

    def upstreams_off(self) -> set[str]:
        """The upstreams that nothing may go to."""
        return {name for scope, name in self._present() if scope is Scope.UPSTREAM}

    def _present(self) -> frozenset[tuple[Scope, str]]:
        with self._lock:
            if time.monotonic() - self._read_at > _KEEP_S:
                self._off = frozenset((row.scope, row.name) for row in list_off())
                self._read_at = time.monotonic()
            return self._off
