"""Hibernates sandboxes that nobody has used for their idle timeout, and on a node that has promised
all that it can, the idlest before that.

The idle clock of a sandbox (`last_active_at`, `idle_at`) is restarted by calls to its guest, shells
among them (`guest_calls/use_while_running.py`), by previews (`previews/keep_awake.py`), by an
extend, and a wake of one that runs (`lifecycle.py`), by the boots and wakes that its node ends, and
when it begins to serve an app (`deploys/served/runtimes.py`).
"""
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import peewee

from models.database import UNLOCKED_ROWS, connection, database, now
from models.operations import OutboxMessage
from models.row import Statement
from models.sandboxes import Activity, Sandbox
from models.states import OperationKind, SandboxKind
from models.usage import SandboxUsage
from services.hosts.capacity import Load
from services.hosts.node_load import promise_of, read_load
from services.hosts.nodes import SANDBOX_LANE, NodeFacts
from services.operations import outbox
from services.operations.begin import begin
from services.operations.reporting_nodes import reporting_ids
from services.operations.transitions import TRANSITIONS
from services.protocols import Deps

_BATCH = 200
# So many fall asleep at a time to make room on a node: to save their state is work for it too.
_AT_ONCE = 4
# What uses this much of a CPU works, although nobody calls it; an idle guest uses a hundredth of
# it.
_WORKING_PERMILLE = 100


def touch_values(idle_timeout_s: int) -> dict[str, object]:
    """Columns that restart the idle clock."""
    present = now()
    return {"last_active_at": present, "idle_at": present + timedelta(seconds=idle_timeout_s)}


def restarted_clock() -> dict[str, object]:
    """The same for an operation that ends: by the timeout that the row has by then, which may have
    been extended since the operation read it."""
    present = now()
    timeout = Sandbox.idle_timeout_s * peewee.SQL("interval '1 second'")
    return {"last_active_at": present, "idle_at": peewee.Value(present) + timeout}


def hibernate_idle(deps: Deps) -> int:
    """Begin to hibernate running sandboxes whose idle time is over and that nothing uses, on nodes
    that report; returns how many."""
    return _hibernate(deps, partial(_IDLE.all, now(), deps.settings.node_dead_after_s))


def hibernate_idlest(deps: Deps, node: NodeFacts, unused_s: float) -> int:
    """Begin to hibernate the idlest sandboxes of a node that has promised all that it has and can
    hardly promise more, as many as it needs, if nobody has used them for `unused_s` and nothing
    works in them; returns how many. What builds or serves an app is left to its own rules."""
    with connection():
        excess = promise_of(node).excess(read_load(node.id))
        if not excess.is_something():
            return 0
        soon = list(Sandbox.select().where(
            (Sandbox.node_id == node.id) & (Sandbox.task == OperationKind.HIBERNATE)))
    for sandbox in soon:
        excess = excess.without(sandbox.vcpus, sandbox.mem_mb)
    used_at = Sandbox.idle_at - Sandbox.idle_timeout_s * peewee.SQL("interval '1 second'")
    working = SandboxUsage.select().where(
        (SandboxUsage.sandbox_id == Sandbox.id) & (SandboxUsage.cpu_permille >= _WORKING_PERMILLE))
    at_work = reporting_ids(deps.settings.node_dead_after_s, SANDBOX_LANE)
    which = (
        (Sandbox.node_id == node.id) & Sandbox.kind.in_((SandboxKind.API, SandboxKind.APP))
        & Sandbox.node_id.in_(at_work) & (used_at <= now() - timedelta(seconds=unused_s))
        & ~peewee.fn.EXISTS(working)
    )
    most = max(_AT_ONCE - len(soon), 0)
    found = _unused(now(), which).order_by(used_at).limit(most)
    return _hibernate(deps, lambda: found.for_update(UNLOCKED_ROWS), excess)


def _unused(moment: Any, which: Any) -> Any:
    """Those of `which` that could be put to sleep and that no call uses."""
    in_flight = Activity.select().where(
        (Activity.sandbox_id == Sandbox.id) & (Activity.expires_at > moment))
    return Sandbox.select().where(
        Sandbox.status.in_(TRANSITIONS[OperationKind.HIBERNATE].starts) & Sandbox.task.is_null()
        & which & ~peewee.fn.EXISTS(in_flight))


def due_query(moment: Any, within_s: Any) -> Any:
    """Those that `hibernate_idle` puts to sleep at a moment, on nodes that have reported in the
    last `within_s` seconds and whose lane for that works: elsewhere the operation would close the
    sandbox to calls until its deadline, fail, and be begun again."""
    return _unused(moment, (Sandbox.idle_at <= moment)
                   & Sandbox.node_id.in_(reporting_ids(within_s, SANDBOX_LANE)))


# The row lock and the condition on `idle_at` settle the race with a call that begins at the same
# moment.
_IDLE = Statement(Sandbox, lambda moment, within_s: due_query(moment, within_s).order_by(
    Sandbox.idle_at).limit(_BATCH).for_update(UNLOCKED_ROWS), values=2)


def _hibernate(deps: Deps, find: Callable[[], Iterable[Sandbox]],
               excess: Load | None = None) -> int:
    """Begin with the first of what `find` gives, until they are as much as `excess`."""
    messages: list[OutboxMessage] = []
    with connection():
        with database.atomic():
            for sandbox in find():
                if excess is not None:
                    if not excess.is_something():
                        break
                    excess = excess.without(sandbox.vcpus, sandbox.mem_mb)
                messages += begin(deps.settings, sandbox, OperationKind.HIBERNATE)[1]
        outbox.flush(deps.queue, messages)
    return len(messages)
