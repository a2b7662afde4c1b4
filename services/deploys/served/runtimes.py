"""Makes the builder of a run the sandbox that is to serve its app, and says which one serves it
now."""
from dataclasses import dataclass
from typing import Any

from config.settings import Settings
from models.database import connection, database
from models.deploys import Deploy, DeployRun
from models.nodes import Node
from models.sandboxes import Sandbox
from models.states import RunStep, SandboxKind
from services.deploys import runs, version_prefixes
from services.deploys.apps.process_facts import APP_PORT
from services.deploys.runs import RunClaim
from services.deploys.served import replica_keys
from services.deploys.served.replica_keys import ReplicaKey
from services.hosts import nodes
from services.sandboxes.idle import touch_values


@dataclass(frozen=True)
class Live:
    """What serves an app now, and has a database that the next version goes on with: `database` is
    relative to the directory of the project, `prefix` where it is replicated to. `address` is that
    of its node. A node that `is_silent` has not reported for a while: its guests may run, or be
    gone; this node knows of itself that it is there."""

    sandbox_id: str
    node_id: str
    address: str
    is_silent: bool
    database: str
    prefix: str


def adopt_builder(claimed: RunClaim, manifest: dict[str, Any]) -> RunClaim:
    """Let the builder of the run be what is to serve the app; raises LeaseLost."""
    assert claimed.builder_sandbox_id is not None
    with connection(), database.atomic():
        after = runs.advance(claimed, RunStep.START, manifest=manifest, builder_sandbox_id=None,
                             runtime_sandbox_id=claimed.builder_sandbox_id)
        Sandbox.update(kind=SandboxKind.RUNTIME, app_id=claimed.app_id,
                       readiness_port=APP_PORT).where(
            Sandbox.id == claimed.builder_sandbox_id).execute()
    return after


def begin_prefix(settings: Settings, claimed: RunClaim, **columns: Any) -> tuple[
        RunClaim, ReplicaKey]:
    """Give the runtime of the run a prefix to replicate its database to: one of this very claim,
    that nobody has written to. Returns the key of it. Raises LeaseLost."""
    assert claimed.runtime_sandbox_id is not None
    with connection(), database.atomic():
        after = runs.note(claimed, stored_epoch=claimed.epoch, **columns)
        prefix = version_prefixes.keep(claimed.app_id, claimed.version, claimed.epoch)
        key = replica_keys.issue(settings, claimed.runtime_sandbox_id,
                                 version_prefixes.database_prefix(prefix))
    return after, key


def find_live(settings: Settings, claimed: RunClaim) -> Live | None:
    """The runtime whose database the run has to take over; None if there is none."""
    with connection():
        app = Deploy.get_or_none(Deploy.app_id == claimed.app_id)
        if app is None or app.live_sandbox_id is None:
            return None
        name = _database_of(app.app_id, app.live_version)
        if not name:
            return None
        node = Node.get_by_id(Sandbox.get_by_id(app.live_sandbox_id).node_id)
        prefix = version_prefixes.database_prefix(
            version_prefixes.prefix_of(app.app_id, app.live_version, app.live_epoch))
    is_silent = node.id not in (settings.node_id, *nodes.list_alive(settings))
    return Live(app.live_sandbox_id, node.id, node.address, is_silent, name, prefix)


def find_database_name(claimed: RunClaim) -> str | None:
    """What the database that the run goes on with is called unless the project names it: as in the
    live version, or, in a version that is brought back, as it was there, also where what is live
    has none. None if neither has one."""
    with connection():
        brought_back = DeployRun.get_by_id(claimed.id).restores_version
        if brought_back is not None and (name := _database_of(claimed.app_id, brought_back)):
            return name
        app = Deploy.get_or_none(Deploy.app_id == claimed.app_id)
        if app is None or app.live_sandbox_id is None:
            return None
        return _database_of(app.app_id, app.live_version)


def _database_of(app_id: str, version: int) -> str | None:
    made = DeployRun.get((DeployRun.app_id == app_id) & (DeployRun.version == version))
    name: str | None = made.manifest["database"]
    return name


def begin_serving(settings: Settings, sandbox_id: str) -> None:
    """From now on it sleeps when nobody asks for anything; in the transaction that makes it
    live."""
    idle_s = settings.runtime_idle_s
    Sandbox.update(idle_timeout_s=idle_s, **touch_values(idle_s)).where(
        Sandbox.id == sandbox_id).execute()
