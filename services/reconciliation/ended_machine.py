"""Makes a sandbox `hibernated` whose machine has ended by itself; it wakes from its disk.

There is nothing left to do on the node, so the hibernation is begun and finished in one
transaction, by the operation protocol as every other.
"""
from collections.abc import Callable

from config.settings import Settings
from models.database import connection, database
from models.operations import OutboxMessage
from models.states import OperationKind, SandboxStatus
from services.operations.begin import begin_claimed
from services.reconciliation.seen_rows import RECONCILER, SeenRow, lock_unchanged
from services.sandboxes.outcomes import Outcome, finish


def hibernate(settings: Settings, seen: SeenRow, note: str,
              is_alive: Callable[[], bool]) -> list[OutboxMessage] | None:
    """Write that a running sandbox is asleep; returns the messages to flush after the commit.

    None, and nothing changed, if the row has changed since it was seen, or if `is_alive`, asked
    under the row's lock, says that the machine runs: a wake may have started it since the host was
    listed. `note` tells operators why.
    """
    with connection(), database.atomic():
        row = lock_unchanged(seen)
        if row is None or is_alive():
            return None
        claimed = begin_claimed(settings, row, OperationKind.HIBERNATE, RECONCILER)
        values = {"operator_note": note}
        return finish(claimed,
                      Outcome(True, SandboxStatus.HIBERNATED, sandbox=values, note=note))
