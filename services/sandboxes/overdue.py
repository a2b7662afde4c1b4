"""Gives up operations that no worker has finished by their deadline."""
import logging

from models.database import connection, database, now
from models.operations import Operation
from models.states import OPEN_STATES, OperationKind
from services.protocols import Deps
from services.sandboxes.outcomes import fail_unclaimed

log = logging.getLogger(__name__)
_BATCH = 200


def fail_overdue(deps: Deps) -> int:
    """Give up operations that no worker has finished by their deadline and that nobody works on
    now; returns how many.

    A stop is never given up. A sandbox whose node is gone for good stays what it was, except one
    that never booted.
    """
    present = now()
    count = 0
    with connection():
        overdue = list(
            Operation.select()
            .where(
                Operation.state.in_(OPEN_STATES)
                & (Operation.deadline_at < present)
                & (Operation.lease_until.is_null() | (Operation.lease_until < present))
                & (Operation.kind != OperationKind.STOP)
            )
            .limit(_BATCH)
        )
        for operation in overdue:
            with database.atomic():
                failed = fail_unclaimed(operation, f"The {operation.kind} did not finish in time.")
            if failed:
                log.error("%s of %s missed its deadline", operation.kind, operation.sandbox_id)
                count += 1
    return count
