"""How many shells may be open at a time, in this process and of one owner, as each holds a thread;
and how long a client that is silent or does not read has one.
"""
from contextlib import ExitStack

from app.http.owner_shares import Places
from config.settings import Settings
from services.errors import RateLimited, Unavailable

_RETRY_AFTER_S = 5
# A client has left that reads nothing for so long (s), or of which nothing comes for twice PING_S
# although it is asked every PING_S.
SEND_S = 60
PING_S = 25


class ShellLimits:
    """The room for shells of this process."""

    def __init__(self, settings: Settings) -> None:
        self._limit, self._owners_limit = settings.shell_limit, settings.shells_per_owner
        self._all = Places(self._limit, self._limit)
        self._owners = Places(self._limit, self._owners_limit)

    def take(self, owner_id: str, held: ExitStack) -> None:
        """Take a place until `held` ends; raises Unavailable when all are taken, RateLimited when
        the owner has as many as an account may have."""
        if not self._all.take(""):
            raise Unavailable("Too many shells are open; try again later.",
                              retry_after_s=_RETRY_AFTER_S)
        held.callback(self._all.give_back, "")
        if not self._owners.take(owner_id):
            raise RateLimited(
                f"Your account has {self._owners_limit} shells open, the most it may have; close"
                " one.", retry_after_s=_RETRY_AFTER_S)
        held.callback(self._owners.give_back, owner_id)
