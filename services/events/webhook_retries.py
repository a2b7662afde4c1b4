"""Says when a delivery that failed is tried again: so many seconds after the attempt before was
due, by the setting for it (contract, Webhooks: 1, 5 and 20 s)."""
from collections.abc import Sequence
from datetime import datetime, timedelta


def next_due(due_at: datetime, attempts: int, waits_s: Sequence[float]) -> datetime | None:
    """When the attempt after number `attempts`, which was due at `due_at`, is due; None if that was
    the last.

    Waits run from the time the attempt was due, so its lateness moves nothing. An attempt that is
    due before the one before it has ended begins at that end.
    """
    if attempts >= len(waits_s):
        return None
    return due_at + timedelta(seconds=waits_s[attempts])
