"""Brings up the sandbox that is to serve an app which is not static, and lets it go live.

1. The builder is that sandbox: all that the app needs is there. 2. The app is started as a unit.
3. It has to accept connections from this host within SVC_DEPLOY_READY_S (contract, Deploy rule 5).
4. All that its guest has written is on its disk before it goes live: a machine that dies boots from
that.
"""
import contextlib
import time
from pathlib import PurePosixPath
from typing import Any

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError
from models.database import when_database_answers
from models.states import RunStep
from nodeworker.bun_env import bun_env
from nodeworker.deploys import (
    app_process,
    database_move,
    database_restore,
    find_runtime,
    replication,
)
from nodeworker.deploys.replica_files import ReplicaBroken
from nodeworker.deploys.replication import NotReplicated
from nodeworker.faults import fault
from nodeworker.not_yet import NotYet
from nodeworker.wiring import NodeDeps
from services.deploys import masked_secrets, publishing, runs, variables
from services.deploys.apps.process_facts import APP_PORT
from services.deploys.projects.manifest import BadProject
from services.deploys.runs import RunClaim
from services.deploys.served import runtimes
from services.hosts.assignments import SandboxOnNode
from services.operations import attempts


def adopt(deps: NodeDeps, claimed: RunClaim, manifest: dict[str, Any]) -> None:
    """Make the builder what is to serve the app, and go on."""
    after = when_database_answers(lambda: runtimes.adopt_builder(claimed, manifest))
    fault("deploy.adopted")
    start(deps, after)


def start(deps: NodeDeps, claimed: RunClaim) -> None:
    """Start the app; raises NotYet once it is, BadProject, AgentError, StoreUnavailable, LeaseLost.

    One that goes on with the database of the version before is tried on a copy of that, which
    nobody keeps: its real start, while requests are held, is its second.
    """
    assert claimed.manifest is not None
    sandbox = find_runtime.find(deps, claimed)
    agent = deps.agent(sandbox)
    app_process.install(agent, sandbox.cwd, claimed.manifest["start"], _env(deps, claimed, sandbox))
    path = find_runtime.database_path(claimed, sandbox)
    live = runtimes.find_live(deps.settings, claimed) if path else None
    if path and live:
        app_process.stop(agent)
        app_process.drop_database(agent, path)
        _try_on_copy(deps, claimed, agent, live.prefix, path)
    elif path:
        claimed, key = runtimes.begin_prefix(deps.settings, claimed)
        replication.configure(agent, path, key)
    app_process.start(agent)
    fault("deploy.app_started")
    assert claimed.manifest is not None
    by = {**claimed.manifest, "ready_by": time.time() + deps.settings.deploy_ready_s}
    when_database_answers(lambda: runs.advance(claimed, RunStep.READY, manifest=by,
                                               stored_epoch=claimed.epoch))
    raise NotYet("its app to accept connections")


def _try_on_copy(deps: NodeDeps, claimed: RunClaim, agent: AgentClient, prefix: str,
                 path: str) -> None:
    try:
        database_restore.copy(deps, claimed, agent, prefix, path)
    except ReplicaBroken as error:
        if not attempts.is_last(claimed.attempts, attempts.limit_of_run(deps.settings)):
            raise
        raise BadProject(database_restore.BROKEN) from error


def go_live(deps: NodeDeps, claimed: RunClaim) -> None:
    """Let the app go live once it accepts connections, or have its database moved before that;
    raises NotYet, BadProject, AgentError, NotReplicated, LeaseLost."""
    sandbox = find_runtime.find(deps, claimed)
    _check_ready(deps, claimed, sandbox)
    fault("deploy.ready")
    path = find_runtime.database_path(claimed, sandbox)
    if path and runtimes.find_live(deps.settings, claimed):
        tried = _with_start_s(deps, claimed)
        database_move.move(deps, when_database_answers(
            lambda: runs.advance(claimed, RunStep.MOVE, manifest=tried)))
        return
    agent = deps.agent(sandbox)
    if path:
        _sync(agent, path)
    agent.sync()
    when_database_answers(lambda: publishing.publish_served(deps.rules, claimed))
    fault("deploy.published")


def _with_start_s(deps: NodeDeps, claimed: RunClaim) -> dict[str, Any]:
    """The manifest with the longest that the app may have taken to accept connections: its start
    while requests are held takes about as long. It is asked now and then, so it may be faster."""
    assert claimed.manifest is not None
    wait_s = deps.settings.deploy_ready_s
    took_s = wait_s - (claimed.manifest["ready_by"] - time.time())
    return {**claimed.manifest, "start_s": min(max(took_s, 0.0), wait_s)}


def _check_ready(deps: NodeDeps, claimed: RunClaim, sandbox: SandboxOnNode) -> None:
    assert claimed.manifest is not None
    if find_runtime.accepts(deps, sandbox):
        return
    if time.time() < claimed.manifest["ready_by"]:
        raise NotYet("its app to accept connections")
    agent, wait_s = deps.agent(sandbox), deps.settings.deploy_ready_s
    why = f"Nothing accepted connections on port {APP_PORT} within {wait_s:g} s."
    if _listens_inwards(agent):
        why = f"The app accepts connections on port {APP_PORT} of its own machine only; it has to" \
              " listen on all addresses (0.0.0.0)."
    said = app_process.last_said(agent, masked_secrets.get(deps.settings, claimed.app_id))
    raise BadProject(f"{why} It said last:\n{said}")


def _listens_inwards(agent: AgentClient) -> bool:
    # An app may leave its machine no time to answer.
    with contextlib.suppress(AgentError):
        return agent.wait_port(APP_PORT, 0)
    return False


def _sync(agent: AgentClient, path: str) -> None:
    try:
        replication.sync(agent, path)
    except NotReplicated as error:
        if replication.is_database(agent, path):
            raise
        raise BadProject(f"The database of the app, {PurePosixPath(path).name}, is no SQLite file,"
                         " so it cannot be stored.") from error


def _env(deps: NodeDeps, claimed: RunClaim, sandbox: SandboxOnNode) -> dict[str, str]:
    """The variables of the app: those of its project's sandbox, its own, and where it is to
    listen."""
    settings, app_id = deps.settings, claimed.app_id
    own = when_database_answers(lambda: variables.get_for_run(settings, app_id))
    return {**bun_env(deps), **sandbox.env, **own, "PORT": str(APP_PORT)}
