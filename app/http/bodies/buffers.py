"""How many bytes of bodies and of output this process may hold for its calls, and one owner for
theirs.

Each call has an account. What a guest prints and what a client sends is taken from it as it comes
and given back when the answer is sent. A call that finds no room for its body is 503; output is cut
where the room ends.
"""
from flask import Flask, current_app, g

from app.http.held import held
from app.http.owner_shares import Places
from config.settings import Settings
from services.accounts.principals import Principal
from services.errors import Unavailable

_KEY = "svc-buffers"
_OWNERS_PART = 1 / 2
_RETRY_AFTER_S = 2


class Account:
    """What one call holds of the room of its owner."""

    def __init__(self, room: Places, owner: str) -> None:
        self._room, self._owner = room, owner
        self._held_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Hold that much more until the end of the call; False, and nothing taken, if there is no
        room for it."""
        if not self._room.take(self._owner, size_bytes):
            return False
        self._held_bytes += size_bytes
        return True

    def require(self, size_bytes: int) -> None:
        """As `take`, but raises Unavailable."""
        if not self.take(size_bytes):
            raise Unavailable("Too much is being sent and read at once; try again in a moment.",
                              retry_after_s=_RETRY_AFTER_S)

    def close(self) -> None:
        """Give everything back."""
        self._room.give_back(self._owner, self._held_bytes)
        self._held_bytes = 0


def install(app: Flask, settings: Settings) -> None:
    """Give every call of `app` an account, opened when it is first asked for; goes after
    `held.install`."""
    capacity_bytes = settings.buffer_mb * 1024 * 1024
    app.extensions[_KEY] = Places(capacity_bytes, int(capacity_bytes * _OWNERS_PART))


def current_account() -> Account:
    """The account of the call that is being handled; strangers share one."""
    account: Account | None = g.get("account")
    if account is None:
        principal: Principal | None = g.get("principal")
        account = g.account = Account(current_app.extensions[_KEY],
                                      principal.account_id if principal else "")
        held().callback(account.close)
    return account
