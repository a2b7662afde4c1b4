"""Limits how many operations an owner may have open at once, so that nobody fills the queues."""
import peewee

from config.settings import Settings
from models.operations import Operation
from models.row import Statement
from models.states import OPEN_STATES
from services.errors import RateLimited

_RETRY_S = 5
_OPENED = Statement(
    Operation,
    lambda owner_id: Operation.select(peewee.fn.COUNT(Operation.id).alias("number")).where(
        (Operation.owner_id == owner_id) & Operation.state.in_(OPEN_STATES)),
)


def check_open(settings: Settings, owner_id: str) -> None:
    """Raise RateLimited if the owner has as many operations open as one may have. A stop is begun
    without asking."""
    opened = _OPENED.find(owner_id).number
    if opened >= settings.open_operations:
        raise RateLimited(
            f"{opened} of your operations are under way or waiting; try again when some are done.",
            retry_after_s=_RETRY_S)
