"""How many requests for the object store may be under way, of one guest, of one owner and in
all."""
from collections.abc import Iterator
from contextlib import contextmanager

from app.http.owner_shares import Places
from services.errors import RateLimited

REQUESTS, OF_ONE_OWNER, OF_ONE_GUEST = 1000, 250, 32


class RequestPlaces:
    """The places of all guests."""

    def __init__(self) -> None:
        self._of_owners = Places(REQUESTS, OF_ONE_OWNER)
        self._of_guests = Places(REQUESTS, OF_ONE_GUEST)

    @contextmanager
    def place(self, source: str, owner_id: str) -> Iterator[None]:
        """Hold a place for a request of the guest at `source`; raises RateLimited."""
        refusal = RateLimited("Too many requests at a time.", retry_after_s=1)
        with self._of_guests.held(source, refusal), self._of_owners.held(owner_id, refusal):
            yield
