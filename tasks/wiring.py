"""Composition root of the control processes (control worker, beat, relay)."""
from functools import lru_cache

from config.settings import get_settings
from models.database import connect
from services.protocols import Deps, Guest
from tasks.publisher import CeleryQueue


def no_guest(address: str, port: int, token: str) -> Guest:
    """The control plane never talks to a guest; asking it to is a mistake in our code."""
    raise RuntimeError("the control plane has no data road to guests")


@lru_cache(maxsize=1)
def get_queue() -> CeleryQueue:
    """The publisher of this process."""
    return CeleryQueue(get_settings())


@lru_cache(maxsize=1)
def get_deps() -> Deps:
    """What the use cases need in this process; points the process at its database."""
    settings = get_settings()
    connect(settings.database_url, pool_size=settings.db_pool_size, application="control")
    return Deps(settings=settings, queue=get_queue(), connect_guest=no_guest)
