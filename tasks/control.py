"""Bodies of the control-plane jobs. A job calls rules with the process's dependencies, a sweep one
after another, or hands its work to the nodes that are to do it."""
import logging
import random
from collections.abc import Callable
from dataclasses import astuple

from models.database import DatabaseUnavailable, answers
from models.states import Lane
from services.accounts import api_keys, sessions, sign_in_throttle
from services.deploys import earlier_versions, logs, runs, version_prefixes
from services.deploys.builder_size import builder_size
from services.deploys.served import fences, replica_keys, stop_old_runtimes
from services.deploys.sweeps import overdue, takeover
from services.guest_calls import use_while_running
from services.hosts import nodes, resting_ports, warm_images
from services.llm import call_rows
from services.llm import totals as llm_totals
from services.metering import totals
from services.operations import idempotency, sweeps
from services.operations.announcements import queue_name
from services.protocols import Deps, QueueUnavailable
from services.sandboxes.idle import hibernate_idle
from services.sandboxes.outcomes import fail_overdue
from services.snapshots import deletion, disk_upload
from tasks import contracts
from tasks.celery_app import app, settings
from tasks.wiring import get_deps, get_queue

log = logging.getLogger(__name__)
# By how much the clock of a node may be ahead (s) without its taking each tick for an old one. That
# many seconds' worth of them may wait for it then: to sample twice counts nothing twice.
_CLOCKS_APART_S = 60.0
builder_size(settings)  # a name that is no size ends the process at its start


@app.task(name=contracts.IDLE_SWEEP)  # type: ignore[untyped-decorator]
def idle_sweep() -> None:
    """Begin to hibernate what has been idle too long."""
    count = hibernate_idle(get_deps())
    if count:
        log.info("hibernating %d idle sandboxes", count)


@app.task(name=contracts.OPERATIONS_SWEEP)  # type: ignore[untyped-decorator]
def operations_sweep() -> None:
    """Announce neglected operations, uploads, deletions and bakes again and give up operations past
    their deadline."""
    deps, within_s = get_deps(), settings.node_dead_after_s
    _do_each(lambda: _announce_neglected(deps),
             lambda: disk_upload.UPLOADS.announce_due(deps, within_s),
             lambda: warm_images.BAKES.announce_due(deps, within_s),
             lambda: deletion.DELETIONS.announce_due(deps, within_s), lambda: fail_overdue(deps))


def _announce_neglected(deps: Deps) -> None:
    count = sweeps.announce_neglected(deps)
    if count:
        log.warning("announced %d neglected operations again", count)


@app.task(name=contracts.DEPLOYS_SWEEP)  # type: ignore[untyped-decorator]
def deploys_sweep() -> None:
    """Move deploys from nodes that are no place for them, announce neglected ones again, give up
    those past their deadline, forget fences that are over, stop what served an app before, take
    away the keys of what is stopped, and have what no app needs any more removed from the store."""
    deps, within_s = get_deps(), settings.node_dead_after_s
    _do_each(lambda: _take_over(deps), lambda: runs.RUNS.announce_due(deps, within_s),
             lambda: _give_up(deps), fences.forget_expired,
             lambda: stop_old_runtimes.stop_due(deps), replica_keys.revoke_ended,
             earlier_versions.end_due, _remove_prefixes)


def _do_each(*steps: Callable[[], object]) -> None:
    """Do all steps: one that fails keeps none of the others from their work, unless the database
    is away, which all of them need."""
    for step in steps:
        try:
            step()
        except Exception as error:
            # A statement or a lock that takes too long looks the same as a database that is away.
            if isinstance(error, DatabaseUnavailable) and not answers():
                raise
            log.exception("a step of a sweep failed; the sweep goes on with the next")


def _take_over(deps: Deps) -> None:
    for move in takeover.take_over(deps):
        log.warning("the deploy of %s moves from node %s to %s: %s", *astuple(move))


def _give_up(deps: Deps) -> None:
    for slug in overdue.give_up(deps):
        log.error("the deploy of %s missed its deadline", slug)


def _remove_prefixes() -> None:
    at_work = nodes.list_alive(settings, Lane.BULK)
    for prefix in version_prefixes.take_due() if at_work else []:
        # Any of them can do it, and another one the next time.
        queue = queue_name(random.choice(at_work), Lane.BULK)
        try:
            get_queue().publish(queue, contracts.REMOVE_PREFIX, {"prefix": prefix})
        except QueueUnavailable:
            log.warning("the broker is away; %s stays in the store for now", prefix)


@app.task(name=contracts.EXPIRY_SWEEP)  # type: ignore[untyped-decorator]
def expiry_sweep() -> None:
    """Forget idempotency keys, activities, resting ports, sessions and counted sign-ins that are
    past their time, operations and API keys that ended long ago, and logs that nobody can read;
    delete snapshots that are past their time, and sum up the tallies."""
    deps = get_deps()
    _do_each(lambda: resting_ports.forget_rested(settings.port_rest_s), idempotency.forget_expired,
             use_while_running.forget_expired, sessions.forget_ended, sign_in_throttle.forget_whole,
             api_keys.forget_old, lambda: sweeps.forget_old(settings.operation_days),
             logs.forget_unreadable, totals.sum_up, llm_totals.sum_up,
             lambda: _expire_snapshots(deps))


def _expire_snapshots(deps: Deps) -> None:
    count = deletion.expire(deps)
    if count:
        log.info("deleting %d snapshots that are older than %d days", count, settings.snapshot_days)


@app.task(name=contracts.LLM_SWEEP)  # type: ignore[untyped-decorator]
def llm_sweep() -> None:
    """End the LLM calls that nobody has in hand, and forget old ones."""
    get_deps()
    _do_each(call_rows.close_abandoned, lambda: call_rows.forget_old(settings.llm_call_days))


@app.task(name=contracts.SAMPLE_ALL)  # type: ignore[untyped-decorator]
def sample_all() -> None:
    """Ask every live node what its sandboxes have used."""
    _tick_nodes(contracts.SAMPLE, settings.usage_sample_s)


@app.task(name=contracts.DISK_SAMPLE_ALL)  # type: ignore[untyped-decorator]
def sample_all_disks() -> None:
    """Ask every live node what its sandboxes and snapshots occupy."""
    _tick_nodes(contracts.DISK_SAMPLE, settings.disk_sample_s, lane=Lane.BULK)


@app.task(name=contracts.STORE_SWEEP_ANY)  # type: ignore[untyped-decorator]
def sweep_store() -> None:
    """Ask one live node, whichever, to remove what the object store holds for nobody."""
    _tick_nodes(contracts.STORE_SWEEP, settings.store_sweep_s, lane=Lane.BULK, most=1)


def _tick_nodes(job: str, interval_s: float, *, lane: Lane = Lane.CTL,
                most: int | None = None) -> None:
    get_deps()
    for node_id in nodes.list_alive(settings, lane)[:most]:
        try:
            get_queue().publish(queue_name(node_id, lane), job, {},
                                expires_s=interval_s + _CLOCKS_APART_S)
        except QueueUnavailable:
            log.warning("the broker is away; %s of %s dropped", job, node_id)
