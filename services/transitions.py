"""The only place that says which operation may start in which status, and where it leads."""
from dataclasses import dataclass

from models.states import OperationKind, SandboxStatus

_RUNNING, _HIBERNATED = SandboxStatus.RUNNING, SandboxStatus.HIBERNATED
_PROVISIONING, _STOPPED = SandboxStatus.PROVISIONING, SandboxStatus.STOPPED


@dataclass(frozen=True)
class Transition:
    """`starts` are the statuses it may begin in, `already` those in which the caller's wish is fulfilled; success leads to
    `reaches` (None: the status stays). After a failure the worker says what it found, see `nodeworker.lifecycle`."""

    starts: frozenset[SandboxStatus]
    already: frozenset[SandboxStatus]
    reaches: SandboxStatus | None
    doing: str
    lane: str


TRANSITIONS: dict[OperationKind, Transition] = {
    OperationKind.BOOT: Transition(frozenset({_PROVISIONING}), frozenset(), _RUNNING, "booting", "ops"),
    OperationKind.HIBERNATE: Transition(frozenset({_RUNNING}), frozenset({_HIBERNATED}), _HIBERNATED, "hibernating", "ops"),
    OperationKind.WAKE: Transition(frozenset({_HIBERNATED}), frozenset({_RUNNING}), _RUNNING, "waking", "ops"),
    OperationKind.SNAPSHOT: Transition(frozenset({_RUNNING, _HIBERNATED}), frozenset(), None, "being snapshotted", "ops"),
    OperationKind.STOP: Transition(
        frozenset({_PROVISIONING, _RUNNING, _HIBERNATED}), frozenset({_STOPPED}), _STOPPED, "stopping", "ctl"
    ),
}


def describe(status: str, task: str | None) -> str:
    """The state of a sandbox in words for an error message: `running`, or `running and hibernating`."""
    if task is None:
        return status
    return f"{status} and {TRANSITIONS[OperationKind(task)].doing}"
