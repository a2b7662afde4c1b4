"""Moves the database of an app to the sandbox of its next version; no row is lost that somebody was
told of, and no request fails.

1. The version before is awake, the new one has its app at rest and replicates to a prefix that is
empty; what its build has made is on its disk. 2. Edges hold what is asked of the app, until what
they have asked before is answered. 3. The app of the version before is frozen: its timers write as
well. All that it has written goes to the store. 4. The database is made of that here, checked, and
put into the new guest, on its disk; its app is started. 5. The new prefix holds a whole database.
6. The new version goes live, if the fence has stood all the while. Whatever fails in between, the
version before goes on and answers what was held; if this worker dies, so it does before the next
attempt holds anything, or once fence and frost end by themselves.
"""
import logging
import time
from dataclasses import dataclass
from datetime import datetime

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentTimeout, AgentUnreachable
from models.database import now, when_database_answers
from nodeworker.deploys import (
    app_process,
    database_restore,
    find_runtime,
    replica_files,
    replication,
)
from nodeworker.deploys.replica_files import ReplicaBroken
from nodeworker.deploys.replication import NotReplicated
from nodeworker.faults import fault
from nodeworker.not_yet import NotYet
from nodeworker.wiring import NodeDeps
from services.deploys import drained_sandboxes, publishing, runs
from services.deploys.apps.process_facts import APP_PORT
from services.deploys.projects.manifest import BadProject
from services.deploys.runs import RunClaim
from services.deploys.served import fences, runtimes
from services.deploys.served.runtimes import Live
from services.errors import Unavailable
from services.hosts import assignments
from services.operations.claims import LeaseLost
from services.previews import keep_awake, wake
from services.previews.wake import Reach

log = logging.getLogger(__name__)
_TRIES, _POLL_S = 5, 0.05
# Requests that take longer than this part of SVC_DEPLOY_FENCE_S do not keep a version from going
# live.
_DRAIN_PART = 0.4
# What is frozen stays so until nothing of the fence can be published any more (s).
_FROST_S = 5.0
# How a guest is asked whether it is there: a busy one may let a question pass (s).
_PINGS, _PING_S = 3, 2.0


@dataclass(frozen=True)
class _Before:
    """The version that is live: its guest, None if nothing can be asked of it; the path of its
    database there."""

    live: Live
    agent: AgentClient | None
    path: str


def move(deps: NodeDeps, claimed: RunClaim) -> None:
    """Have the runtime of the run go on where the live one is, and let it go live.

    Raises NotYet, BadProject once it was tried often enough, LeaseLost, and what trying again may
    mend: AgentError, NotReplicated, ReplicaBroken, StoreUnavailable, Unavailable.
    """
    assert claimed.manifest is not None
    live = runtimes.find_live(deps.settings, claimed)
    assert live is not None, "what is live changes by a run, and this is the only one"
    tried = claimed.manifest.get("moves", 0)
    fence_s = fences.length_s(deps.settings.deploy_fence_s, claimed.manifest.get("start_s", 0.0))
    left = fences.find_left(claimed)
    if tried >= _TRIES and left is None:
        raise BadProject("The database could not be moved to the new version within"
                         f" {fence_s:.0f} s, in {tried} attempts.")
    before = _awake(deps, live)
    if left is not None:
        # Of an attempt that died inside its fence: the version before answers what is held since,
        # before anything is held anew, or given up.
        _release(deps, claimed, before, left)
        raise NotYet("what was held to be answered")
    sandbox = find_runtime.find(deps, claimed)
    agent, path = deps.agent(sandbox), find_runtime.database_path(claimed, sandbox)
    assert path is not None
    replica_files.check_room(deps.settings, live.prefix)  # while no request is held for it
    app_process.stop(agent)
    app_process.drop_database(agent, path)
    counted = {**claimed.manifest, "moves": tried + 1}
    claimed, key = runtimes.begin_prefix(deps.settings, claimed)
    replication.configure(agent, path, key)
    # While nobody waits: the machine boots from its disk if it dies, and a flush in the fence is
    # short then.
    agent.sync()
    fault("deploy.prepared")
    # With the fence: an attempt that ends before it, by a kill or for want of the guest, is none.
    until = fences.begin(claimed, live.sandbox_id, fence_s, manifest=counted)
    try:
        fault("deploy.fenced")
        has_database = _carry(deps, claimed, before, agent, path, until)
        _go_live(deps, claimed, until, key.prefix, has_database=has_database)
    except LeaseLost:
        # Another worker may be at it by now: fence and frost are its own, or end by themselves.
        raise
    except Exception as error:
        _release(deps, claimed, before, until)
        if isinstance(error, ReplicaBroken) and tried + 1 >= _TRIES:
            raise BadProject(database_restore.BROKEN) from error
        raise
    _keep_frozen(before)
    fault("deploy.published")


def _awake(deps: NodeDeps, live: Live) -> _Before:
    """The version before, awake for the time of a fence. Nothing can be asked of one that is gone,
    or that does not answer and whose node is silent: what it has stored counts. One that answers
    goes on serving, whatever its node does. Raises NotYet, Unavailable, and AgentUnreachable if
    the packet policy of another node keeps us from it: no request is held for that."""
    sandbox = assignments.get_assigned(deps.settings, live.sandbox_id)
    path = f"{sandbox.cwd}/{live.database}"
    agent = AgentClient(live.address, sandbox.agent_port, sandbox.agent_token)
    reach = Reach.GONE
    if not live.is_silent or _answers(agent):
        # A closed node is kept from what is new; this is how what it has gets off it.
        reach = wake.bring_up(deps.rules, live.sandbox_id, APP_PORT, even_closed=True)
    if reach is Reach.COMING:
        raise NotYet("the version before to wake")
    if reach is Reach.GONE:
        log.warning("%s cannot be asked; what it has stored counts", live.sandbox_id)
        return _Before(live, None, path)
    if live.node_id != deps.settings.node_id and not _answers(agent):
        raise AgentUnreachable(
            f"the agent of {live.sandbox_id} does not answer {deps.settings.node_id};"
            f" SVC_AGENT_SOURCES of node {live.node_id} must have the address of this host")
    keep_awake.touch(live.sandbox_id)
    return _Before(live, agent, path)


def _answers(agent: AgentClient) -> bool:
    """False only if nobody answers: any other error is an answer."""
    for _ in range(_PINGS):
        try:
            agent.ping(_PING_S)
            return True
        except (AgentUnreachable, AgentTimeout) as error:
            log.info("the version before does not answer: %s", error)
        except AgentError:
            return True
    return False


def _carry(deps: NodeDeps, claimed: RunClaim, before: _Before, agent: AgentClient, path: str,
           until: datetime) -> bool:
    """Bring the database over, and start the app on it; returns whether it has one then."""
    _wait_until_drained(deps, before.live.sandbox_id)
    txid, has_database = None, True
    if before.agent is not None:
        app_process.freeze(before.agent, _left_s(until) + _FROST_S)
        fault("deploy.frozen")
        txid = replication.sync(before.agent, before.path, _left_s(until))
        has_database = txid is not None
        if not has_database and replica_files.holds_any(deps.settings, before.live.prefix):
            raise NotReplicated("the version before has lost the database that is stored of it")
    _check_held(deps, claimed)
    if has_database:
        database_restore.copy(deps, claimed, agent, before.live.prefix, path, txid,
                              left_s=lambda: _left_s(until))
        # SQLite itself sees only to what it writes: of a file that is empty after the machine died
        # it makes a new database.
        agent.sync(_left_s(until))
    _check_held(deps, claimed)
    app_process.start(agent)
    sandbox = find_runtime.find(deps, claimed)
    while not find_runtime.accepts(deps, sandbox):
        _left_s(until)
        time.sleep(_POLL_S)
    fault("deploy.moved")
    return _store(agent, path, until)


def _store(agent: AgentClient, path: str, until: datetime) -> bool:
    """Bring the database, if there is one, to the store, as soon as what replicates it is up;
    returns whether there is."""
    while True:
        try:
            return replication.sync(agent, path, _left_s(until)) is not None
        except NotReplicated as error:
            log.info("the new version is not in the store yet: %s", error)
            time.sleep(_POLL_S)


def _go_live(deps: NodeDeps, claimed: RunClaim, until: datetime, prefix: str, *,
             has_database: bool) -> None:
    """Let it go live, if what it has stored makes a whole database: what the version before has
    stored goes."""
    if has_database and not replication.check(deps.settings, prefix):
        raise NotReplicated("what the new version has stored does not restore")
    when_database_answers(lambda: publishing.publish_served(deps.rules, claimed, until))


def _wait_until_drained(deps: NodeDeps, sandbox_id: str) -> None:
    end = time.monotonic() + deps.settings.deploy_fence_s * _DRAIN_PART
    while not when_database_answers(lambda: drained_sandboxes.is_drained(sandbox_id)):
        if time.monotonic() > end:
            log.warning("requests to %s are still in flight; they are not waited for", sandbox_id)
            return
        time.sleep(_POLL_S)


def _left_s(until: datetime) -> float:
    """What is left of the fence; raises Unavailable if that is nothing."""
    left_s = (until - now()).total_seconds()
    if left_s <= 0:
        raise Unavailable("The fence was over before the new version was up.")
    return left_s


def _check_held(deps: NodeDeps, claimed: RunClaim) -> None:
    when_database_answers(lambda: runs.renew(claimed, deps.settings.operation_lease_s))


def _keep_frozen(before: _Before) -> None:
    """It is stopped soon. Until then it takes nothing up that it had received before it was frozen:
    its database is nobody's any more, so that a row would be acknowledged and lost."""
    if before.agent is not None:
        try:
            app_process.keep_frozen(before.agent)
        except AgentError as error:
            log.warning("%s may thaw before it is stopped: %s", before.live.sandbox_id, error)


def _release(deps: NodeDeps, claimed: RunClaim, before: _Before, until: datetime) -> None:
    """Let the version before go on, unless the run is not ours any more: it may be retired by now,
    or frozen by another worker. Raises LeaseLost."""
    _check_held(deps, claimed)
    if before.agent is not None:
        try:
            app_process.thaw(before.agent)
        except AgentError as error:
            log.warning("%s thaws by itself: %s", before.live.sandbox_id, error)
    when_database_answers(lambda: fences.lift(claimed, before.live.sandbox_id, until))
