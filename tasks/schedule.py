"""The beat schedule: every entry is a tick that expires before the next one, so a backlog never piles up."""
from typing import Any

from config.settings import Settings
from tasks import contracts


def beat_schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """Job, interval in seconds and expiry of every periodic sweep."""
    intervals = {
        contracts.IDLE_SWEEP: settings.idle_sweep_s,
        contracts.OPERATIONS_SWEEP: settings.operation_sweep_s,
        contracts.EXPIRY_SWEEP: 60.0,
        contracts.RECONCILE_ALL: settings.reconcile_s,
    }
    return {
        job: {"task": job, "schedule": seconds, "options": {"queue": "control", "expires": seconds}}
        for job, seconds in intervals.items()
    }
