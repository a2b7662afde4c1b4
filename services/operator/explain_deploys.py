"""What an app serves, and what a deploy of it is waiting for, in sentences for an operator."""
from collections.abc import Iterator

from config.settings import Settings
from models.database import connection
from models.deploys import Deploy, DeployRun
from models.nodes import Node
from models.operations import OutboxMessage
from models.sandboxes import Sandbox
from models.states import OPEN_RUN_STATES, RunState, RunStep
from models.users import User
from services.deploys import runs
from services.deploys.apps.find import with_last_run
from services.errors import NotFound
from services.operations.announcements import queue_name
from services.operations.transitions import describe
from services.operator.deploys import app_report
from services.operator.explain import Explainer, Explanation, QueueLength

_STANDS = {
    RunState.QUEUED: "is waiting for a worker",
    RunState.RUNNING: "is running",
    RunState.SUCCEEDED: "has succeeded",
    RunState.FAILED: "has failed",
}
_NEXT = {
    RunStep.BUILD: "It builds the snapshot in a sandbox of its own.",
    RunStep.STORE: "It stores what was built.",
    RunStep.STAGE: "It waits until every edge has the files.",
    RunStep.START: "It starts the app in the sandbox that built it.",
    RunStep.READY: "It waits until the app accepts connections.",
    RunStep.MOVE: "It moves the database of the version that is served.",
}


def explain(settings: Settings, subject: str, queue_length: QueueLength) -> Explanation:
    """Explain the app whose slug or id `subject` is and its last deploy, or the one that makes
    version N of `<slug>@N`. Raises NotFound."""
    name, _, version = subject.partition("@")
    with connection():
        row = with_last_run().where((Deploy.slug == name) | (Deploy.app_id == name)).first()
        if row is None:
            raise NotFound(f"There is neither a sandbox nor an operation nor an app {subject}.")
        run = row.last_run if not version else DeployRun.get_or_none(
            (DeployRun.app_id == row.app_id) & (DeployRun.version == _number(version)))
        if run is None:
            raise NotFound(f"No deploy of {name} makes a version {version}.")
        owner = User.get_by_id(row.owner_id).email
        about = _DeployExplainer(settings, queue_length)
        return Explanation([*about.app(row, owner), *about.run(run)],
                           app=app_report(row, owner, run))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1


class _DeployExplainer(Explainer):
    """Makes the sentences about apps and their deploys."""

    def app(self, row: Deploy, owner: str) -> Iterator[str]:
        """What is true of an app."""
        yield f"App {row.slug} ({row.app_id}) of {owner} is {row.status}."
        if row.live_version is None:
            yield "Nothing is served at its address."
        elif row.live_static:
            yield f"Version {row.live_version} is served as files."
        else:
            yield f"Version {row.live_version} is served{self._by(row.live_sandbox_id)}."
        if row.live_static and row.collect_previous_at is not None:
            yield (f"Where that lacks a file, version {row.previous_version} is served; it goes"
                   f" {self._when(row.collect_previous_at)}.")
        if row.fence_until is not None and row.fence_until > self._present:
            yield (f"Edges hold its requests while its data moves; they go on"
                   f" {self._when(row.fence_until)} at the latest.")

    def _by(self, sandbox_id: str | None) -> str:
        sandbox = Sandbox.get_or_none(Sandbox.id == sandbox_id)
        if sandbox is None:
            return " by a sandbox that is gone"
        stands = describe(sandbox.status, sandbox.task)
        return f" by sandbox {sandbox.id}, which is {stands} on node {sandbox.node_id}"

    def run(self, row: DeployRun) -> Iterator[str]:
        """What a deploy is waiting for, or how it ended."""
        restored = (f" It brings version {row.restores_version} back."
                    if row.restores_version else "")
        yield (f"The deploy of version {row.version}, of snapshot {row.snapshot_id}, was asked for"
               f" {self._when(row.created_at)} and {_STANDS[RunState(row.state)]}.{restored}")
        if row.state not in OPEN_RUN_STATES:
            yield f"It ended {self._when(row.finished_at)}."
            if row.error:
                yield f"The service is told: {row.error}"
            if row.operator_error:
                yield f"For operators: {row.operator_error}"
            return
        yield _NEXT[RunStep(row.step)]
        for what, sandbox_id in (("builder", row.builder_sandbox_id),
                                 ("runtime", row.runtime_sandbox_id)):
            if sandbox_id is not None:
                yield from self._sandbox_of(what, sandbox_id)
        yield from self._worker(row)
        yield f"It fails {self._when(row.deadline_at)} if it has not ended then."
        yield from self.node(row.node_id)
        node = Node.get_or_none(Node.id == row.node_id)
        if node is not None and node.lanes is not None and runs.LANE not in node.lanes:
            yield f"The {runs.LANE.value} lane of node {row.node_id} does not start."

    def _sandbox_of(self, what: str, sandbox_id: str) -> Iterator[str]:
        sandbox = Sandbox.get_or_none(Sandbox.id == sandbox_id)
        if sandbox is None:
            yield f"Its {what}, sandbox {sandbox_id}, is gone."
            return
        yield f"Its {what}, sandbox {sandbox_id}, is {describe(sandbox.status, sandbox.task)}."
        if sandbox.error:
            yield f"Of that: {sandbox.error}"

    def _worker(self, row: DeployRun) -> Iterator[str]:
        if row.operator_error:
            yield f"It says: {row.operator_error}."
        lease = row.lease_until
        if row.state == RunState.RUNNING and lease is not None and lease > self._present:
            yield (f"Worker {row.claimed_by} is at it (attempt {row.attempts}); it renews its"
                   f" lease, which ends {self._when(lease)}.")
            return
        if row.state == RunState.RUNNING:
            yield f"Worker {row.claimed_by} has it but is silent since {self._when(lease)}."
        if OutboxMessage.select().where((OutboxMessage.job == runs.JOB)
                                        & (OutboxMessage.payload == {"run": row.id})).exists():
            yield ("No worker knows of it: its message waits for the broker, and the relay sends it"
                   " when that is back.")
        if row.announce_at is not None:
            yield self._again(row.node_id, row.announce_at)
        yield self._in_queue(queue_name(row.node_id, runs.LANE))
