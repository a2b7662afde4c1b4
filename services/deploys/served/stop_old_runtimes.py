"""Stops the sandbox that served an app, once the app is served by something else or is gone.

It is written down in the transaction that ends its service, so nothing that dies afterwards leaves
it running.
"""
from datetime import timedelta
from typing import Any

from models.database import connection, database, now
from models.deploys import RetiredRuntime
from models.operations import OutboxMessage
from models.states import SandboxStatus
from services.deploys import drained_sandboxes
from services.deploys.builder_removal import ACCOUNT
from services.operations import outbox
from services.operations.begin import lock_sandbox
from services.protocols import Deps
from services.sandboxes.outcomes import begin_stop

_BATCH = 50


def retire(sandbox_id: str, after_s: float) -> None:
    """Have a sandbox stopped as soon as what is asked of it is answered, `after_s` seconds from now
    at the latest, in the current transaction. One that keeps its key to the store brings its last
    rows there before it is stopped."""
    stop_at = now() + timedelta(seconds=after_s)
    RetiredRuntime.insert(sandbox_id=sandbox_id, stop_at=stop_at).on_conflict_ignore().execute()
    drained_sandboxes.ask(sandbox_id, after_s)


def stop_due(deps: Deps) -> list[str]:
    """Begin to stop those whose time has come; returns their ids."""
    with connection():
        waiting = [row for row in due_query(now()).order_by(RetiredRuntime.stop_at)
                   if row.stop_at <= now() or drained_sandboxes.is_drained(row.sandbox_id)]
        return [row.sandbox_id for row in waiting[:_BATCH] if _stop(deps, row.sandbox_id)]


def due_query(moment: Any) -> Any:
    """Those that `stop_due` looks at, at any moment: one may be done before its time has come."""
    return RetiredRuntime.select()


def _stop(deps: Deps, sandbox_id: str) -> bool:
    messages: list[OutboxMessage] = []
    with database.atomic():
        sandbox = lock_sandbox(sandbox_id)
        assert sandbox is not None, "rows of sandboxes are kept"
        mine = RetiredRuntime.delete().where(RetiredRuntime.sandbox_id == sandbox_id).execute()
        if mine and sandbox.status != SandboxStatus.STOPPED:
            messages = begin_stop(deps.settings, sandbox, requested_by=ACCOUNT)[1]
        drained_sandboxes.clear(sandbox_id)
    outbox.flush(deps.queue, messages)
    return bool(mine)
