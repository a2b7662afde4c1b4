"""Composition root of the gateway: the database pointed at, and the queue that wakes sandboxes."""
from config.settings import Settings
from models.database import connect
from services.protocols import Deps
from tasks.publisher import CeleryQueue
from tasks.wiring import no_guest


def build(settings: Settings) -> Deps:
    """What the rules need; opens no connection yet. The gateway talks to no agent of a guest."""
    connect(settings.database_url, pool_size=settings.db_pool_size, application="svc-gateway")
    return Deps(settings=settings, queue=CeleryQueue(settings), connect_guest=no_guest)
