"""Works on one run: claim, do the step that is next, say how far it is.

1. Claim by compare-and-set; nothing to claim means another has it, or it is done: end quietly.
2. Do its step under a lease kept alive. A step that waits for a guest, an edge or a boot raises
NotYet, and the run is given back: nobody holds it meanwhile. 3. A failure that is the project's
ends the run; any other is tried again until the attempts or the time are used up. 4. What is
written counts under the claim's epoch only.
"""
import logging
from collections.abc import Callable
from dataclasses import asdict

from guest.client.errors import AgentError, AgentTimeout
from models.database import DatabaseUnavailable, connection, when_database_answers
from models.states import RunStep, SandboxStatus
from nodeworker import parked_operations
from nodeworker.deploys import building, database_move, start_and_go_live, storing
from nodeworker.deploys.replica_files import ReplicaBroken
from nodeworker.deploys.replication import NotReplicated
from nodeworker.disks.reserve_blocks import MIB
from nodeworker.error_texts import named, printable
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import VmBusy
from nodeworker.not_yet import NotYet
from nodeworker.renew_lease import LeaseKeeper
from nodeworker.snapshots import disk_fetch
from nodeworker.wiring import NodeDeps
from objects.store import ObjectStore, StoreUnavailable
from services.deploys import (
    builders,
    failed_runs,
    logs,
    publishing,
    runs,
    variables,
    version_prefixes,
)
from services.deploys.edges import staging
from services.deploys.projects.manifest import BadProject
from services.deploys.projects.static_or_process import Built
from services.deploys.runs import RunClaim
from services.deploys.served import runtimes
from services.errors import NotFound, RateLimited, ServiceError, Unavailable
from services.hosts import assignments
from services.operations import attempts, outbox
from services.operations.announcements import worker_name
from services.operations.claims import LeaseLost

log = logging.getLogger(__name__)
_LOOK_S, _RETRY_S = 0.5, 2.0


class BuilderGone(Exception):
    """The builder of a run has ended before its build had; the run begins anew in another."""


_FROM_OUTSIDE = (AgentError, BuilderGone, NotReplicated, ReplicaBroken, StoreUnavailable,
                 ServiceError, *DatabaseUnavailable)


def run_announced(deps: NodeDeps, run_id: int) -> None:
    """Work on a run of this node until it has ended or waits for something; returns at once if
    there is nothing to do."""
    settings = deps.settings
    with connection():
        claimed = runs.claim(
            run_id, settings.node_id, worker_name(settings.node_id, runs.LANE),
            settings.operation_lease_s,
            share=max(1, int(settings.deploy_concurrency * settings.owner_share)))
    if claimed is not None:
        fault("deploy.claimed")
        _work_under_lease(deps, claimed)
    parked_operations.tell_ctl(settings.node_dir)


def _work_under_lease(deps: NodeDeps, claimed: RunClaim) -> None:
    settings = deps.settings
    lease = LeaseKeeper(lambda: runs.renew(claimed, settings.operation_lease_s),
                        settings.operation_lease_s, f"deploy run {claimed.id}")
    with lease:
        try:
            _work(deps, claimed)
        except LeaseLost as error:
            log.warning("deploy run %d is not ours any more: %s", claimed.id, error)


def _work(deps: NodeDeps, claimed: RunClaim) -> None:
    try:
        if claimed.has_expired:
            raise BadProject("The deploy did not finish in time.")
        _STEPS[claimed.step](deps, claimed)
    except (NotYet, AgentTimeout, VmBusy) as wait:
        # A build may keep its guest too busy to answer; that has an end with the deadline.
        log.debug("deploy run %d waits: %s", claimed.id, wait)
        _give_back(claimed, _LOOK_S, None)
    except (Unavailable, RateLimited) as wait:
        # Room, the snapshot, or the end of some of the owner's operations. Another node may take
        # the run meanwhile.
        said = printable(str(wait))
        when_database_answers(lambda: runs.give_back(claimed, _RETRY_S, said, counts=False))
    except (BadProject, NotFound) as error:
        cause = error.__cause__
        _fail(deps, claimed, str(error), None if cause is None else named(cause))
    except LeaseLost:
        raise
    except Exception as error:
        is_from_outside = isinstance(error, _FROM_OUTSIDE)
        if not is_from_outside:
            log.exception("deploy run %d failed, attempt %d", claimed.id, claimed.attempts)
        said = named(error)
        limit = attempts.limit_of_run(deps.settings, from_outside=is_from_outside)
        if attempts.is_last(claimed.attempts, limit):
            _fail(deps, claimed, "The deploy could not be finished.", said)
        else:
            _give_back(claimed, _RETRY_S, said)


def _give_back(claimed: RunClaim, delay_s: float, error: str | None) -> None:
    when_database_answers(lambda: runs.give_back(claimed, delay_s, error))


def _fail(deps: NodeDeps, claimed: RunClaim, error: str, operator_error: str | None) -> None:
    fault("deploy.failing")
    told = "\n".join(map(printable, error.split("\n")))
    messages = when_database_answers(
        lambda: failed_runs.fail(deps.rules, claimed, told, operator_error))
    outbox.flush(deps.queue, messages)


def _build(deps: NodeDeps, claimed: RunClaim) -> None:
    """Have a builder, have the build run in it, and once it has ended write what was built."""
    if claimed.builder_sandbox_id is None:
        disk_fetch.fetch(deps, claimed.snapshot_id)
        builders.start(deps.rules, claimed)
        fault("deploy.builder_begun")
        raise NotYet("its builder to boot")
    status, error = builders.status_of(claimed.builder_sandbox_id)
    if status is SandboxStatus.PROVISIONING:
        raise NotYet("its builder to boot")
    if status is not SandboxStatus.RUNNING:
        builders.forget(deps.rules, claimed)
        raise BuilderGone(f"the builder is {status.value}: {error}")
    built = _finish_building(deps, claimed, claimed.builder_sandbox_id)
    found = asdict(built)
    if not built.is_static:
        start_and_go_live.adopt(deps, claimed, found)
        return
    after = when_database_answers(lambda: runs.advance(claimed, RunStep.STORE, manifest=found))
    fault("deploy.built")
    _store(deps, after)


def _finish_building(deps: NodeDeps, claimed: RunClaim, builder_id: str) -> Built:
    """What the build has made; raises NotYet, BadProject, AgentError."""
    sandbox = assignments.get_assigned(deps.settings, builder_id)
    agent = deps.agent(sandbox)
    seen = when_database_answers(lambda: logs.size(claimed.id))
    look = building.look(agent, seen)
    if look is None:
        told = variables.get_for_build(deps.settings, claimed.app_id)
        building.begin(agent, sandbox.cwd, building.read_project(agent, sandbox.cwd),
                       {**sandbox.env, **told})
        fault("deploy.build_begun")
        raise NotYet("the build")
    when_database_answers(lambda: logs.add(claimed.id, seen, look.log))
    if look.exit_code is None:
        raise NotYet("the build")
    if look.exit_code:
        raise BadProject(f"The build failed with exit code {look.exit_code}. It said last:\n"
                         f"{building.last_lines(agent)}")
    return building.judge(agent, sandbox.cwd, building.read_project(agent, sandbox.cwd),
                          runtimes.find_database_name(claimed))


def _store(deps: NodeDeps, claimed: RunClaim) -> None:
    """Store the output under a prefix of this epoch."""
    assert claimed.builder_sandbox_id is not None and claimed.manifest is not None
    settings, output = deps.settings, claimed.manifest["output"]
    sandbox = assignments.get_assigned(deps.settings, claimed.builder_sandbox_id)
    prefix = when_database_answers(lambda: version_prefixes.begin(claimed))
    fault("deploy.prefix_kept")
    directory = sandbox.cwd if output == "." else f"{sandbox.cwd}/{output}"
    tar = deps.agent(sandbox).archive(directory, settings.archive_timeout_s,
                                      min_bytes_per_s=settings.archive_min_kib_per_s * 1024)
    try:
        storing.store(ObjectStore(settings), prefix, tar, files_most=settings.deploy_files_most,
                      bytes_most=settings.deploy_mb_most * MIB)
        fault("deploy.stored")
        after = when_database_answers(
            lambda: runs.advance(claimed, RunStep.STAGE, stored_epoch=claimed.epoch))
    except Exception:
        # Its app may have been deleted meanwhile, and the prefix removed before the last object.
        when_database_answers(lambda: version_prefixes.discard_if_lost(claimed))
        raise
    staging.tell()
    _stage(deps, after)


def _stage(deps: NodeDeps, claimed: RunClaim) -> None:
    """Wait until every edge has the files."""
    if not when_database_answers(lambda: staging.is_everywhere(claimed)):
        raise NotYet("the edges to fetch it")
    fault("deploy.staged")
    messages = when_database_answers(lambda: publishing.publish_static(deps.rules, claimed))
    fault("deploy.published")
    outbox.flush(deps.queue, messages)


_STEPS: dict[RunStep, Callable[[NodeDeps, RunClaim], None]] = {
    RunStep.BUILD: _build,
    RunStep.STORE: _store,
    RunStep.STAGE: _stage,
    RunStep.START: start_and_go_live.start,
    RunStep.READY: start_and_go_live.go_live,
    RunStep.MOVE: database_move.move,
}
