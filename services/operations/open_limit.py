"""Limits how many operations an owner may have open at once, so that nobody fills the queues."""
import peewee

from config.settings import Settings
from models.operations import Operation
from models.row import Statement
from models.sandboxes import Sandbox
from models.states import OPEN_STATES, OperationKind
from services.errors import RateLimited
from services.operations.begin import owner_of

_RETRY_S = 5
# Stops do not count: those on a node that is gone stay open until it is back.
_OPENED = Statement(
    Operation,
    lambda owner_id: Operation.select(peewee.fn.COUNT(Operation.id).alias("number")).where(
        (Operation.owner_id == owner_id) & Operation.state.in_(OPEN_STATES)
        & (Operation.kind != OperationKind.STOP)),
)


def check_open(settings: Settings, sandbox: Sandbox) -> None:
    """Raise RateLimited if the owner has as many operations open as one may have. A stop is begun
    without asking."""
    opened = _OPENED.find(owner_of(sandbox)).number
    if opened >= settings.open_operations:
        raise RateLimited(
            f"{opened} of your operations are under way or waiting; try again when some are done.",
            retry_after_s=_RETRY_S)
