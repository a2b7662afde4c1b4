"""Says how often an operation or a deploy run is begun before it fails, and how long one that
failed waits for its next try.

1. An operation has SVC_OPERATION_ATTEMPTS tries. A stop has no limit: what is to go goes. 2. A
deploy run has as many; for a failure that comes from outside (its guest, the store, a database) it
has more, as these pass. 3. A try whose worker died has counted. What merely waits, for a guest or
for the database, has not.
"""
import math

from config.settings import Settings
from models.states import OperationKind
from services.operations.claims import LONGEST_PAUSE_S

_OUTSIDE_FACTOR = 5
_PAUSE_S = 1.0


def limit_of(settings: Settings, kind: OperationKind) -> float:
    """How often an operation of this kind may be begun."""
    return math.inf if kind is OperationKind.STOP else settings.operation_attempts


def limit_of_run(settings: Settings, *, from_outside: bool = False) -> float:
    """How often a deploy run may be begun that fails, with `from_outside` by what is none of its
    doing."""
    return settings.operation_attempts * (_OUTSIDE_FACTOR if from_outside else 1)


def is_last(number: int, limit: float) -> bool:
    """True if no try follows the one of this number should it fail."""
    return number >= limit


def is_one_too_many(number: int, limit: float) -> bool:
    """True if the try of this number must not begin: in each before it a worker died."""
    return number > limit


def pause_s(number: int) -> float:
    """How long after the failure of this try the next one may begin."""
    return min(_PAUSE_S * number, LONGEST_PAUSE_S)
