"""How many requests of visitors this process has at a time, in all and of one account; those that
wait for a sandbox to wake are among them."""
from collections.abc import Iterator
from contextlib import contextmanager

from app.gateway.pages import TOO_MANY
from app.gateway.reach_port import Refused
from app.http.owner_shares import Places

_REQUESTS, _OF_ONE_OWNER = 2000, 500


class Admission:
    """The room for requests of this process."""

    def __init__(self) -> None:
        self._places = Places(_REQUESTS, _OF_ONE_OWNER)

    @contextmanager
    def admitted(self, owner_id: str) -> Iterator[None]:
        """Hold a place in the block; raises Refused when all are taken, or all of the owner's."""
        if not self._places.take(owner_id):
            raise Refused(TOO_MANY)
        try:
            yield
        finally:
            self._places.give_back(owner_id)
