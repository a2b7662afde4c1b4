"""The beat schedule: every entry is a tick that expires before the next one (or within two
seconds), so a backlog never piles up. `due_sweeps.py` says which of them are sent."""
from typing import Any

from config.settings import Settings
from tasks import contracts


def beat_schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """Job, interval in seconds and expiry of every periodic sweep."""
    intervals = {
        contracts.IDLE_SWEEP: settings.idle_sweep_s,
        contracts.OPERATIONS_SWEEP: settings.operation_sweep_s,
        contracts.DEPLOYS_SWEEP: settings.deploy_sweep_s,
        contracts.EXPIRY_SWEEP: 60.0,
        contracts.LLM_SWEEP: 30.0,
        contracts.SAMPLE_ALL: settings.usage_sample_s,
        contracts.DISK_SAMPLE_ALL: settings.disk_sample_s,
        contracts.STORE_SWEEP_ANY: settings.store_sweep_s,
    }
    webhooks = {contracts.WEBHOOKS_TIDY: 60.0}
    if settings.webhook_receiver_url:
        webhooks[contracts.WEBHOOKS_SWEEP] = settings.webhook_sweep_s
    return {
        **{job: _tick(job, seconds, contracts.CONTROL_QUEUE) for job, seconds in intervals.items()},
        **{job: _tick(job, seconds, contracts.WEBHOOKS_QUEUE) for job, seconds in webhooks.items()},
    }


def _tick(job: str, seconds: float, queue: str) -> dict[str, Any]:
    expires = max(seconds, contracts.TICK_LIFE_S) if queue == contracts.WEBHOOKS_QUEUE else seconds
    return {"task": job, "schedule": seconds, "options": {"queue": queue, "expires": expires}}
