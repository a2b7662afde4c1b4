"""How many of those who sign in at once may be of one account, and of one address: passwords are
compared one after another, and a right one may be sent again and again."""
from collections.abc import Iterator
from contextlib import contextmanager

from app.http.owner_shares import Places
from services.accounts.passwords import AT_ONCE, LINE_MAX, too_many
from services.accounts.sign_in_throttle import network_of

PLACES = AT_ONCE + LINE_MAX
OF_ONE_ACCOUNT, OF_ONE_ADDRESS = PLACES // 4, PLACES // 2


class SignInPlaces:
    """The places of a process."""

    def __init__(self) -> None:
        self._of_accounts = Places(PLACES, OF_ONE_ACCOUNT)
        self._of_addresses = Places(PLACES, OF_ONE_ADDRESS)

    @contextmanager
    def place(self, email: str, address: str) -> Iterator[None]:
        """Hold a place for who signs in as `email` from `address`; raises Unavailable."""
        with (self._of_accounts.held(email.strip().lower(), too_many()),
              self._of_addresses.held(network_of(address), too_many())):
            yield
