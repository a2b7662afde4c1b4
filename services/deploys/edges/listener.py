"""Hears that what edges serve has changed."""
from collections.abc import Callable

from services.deploys.edges.channel import CHANNEL
from services.operations import listening


class Listener(listening.Listener):
    """Calls `ring` after changes that the database tells of, and whenever it begins to listen, also
    after it has lost its connection; who relies on it polls besides."""

    def __init__(self, ring: Callable[[], object]) -> None:
        super().__init__(CHANNEL, lambda _: ring(), began=ring)
