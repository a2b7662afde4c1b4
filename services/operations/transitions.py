"""The only place that says which operation may start in which status, where it leads, and whether a
status may still come."""
from collections.abc import Set
from dataclasses import dataclass

from models.states import Lane, OperationKind, SandboxStatus

_RUNNING, _HIBERNATED = SandboxStatus.RUNNING, SandboxStatus.HIBERNATED
_PROVISIONING, _STOPPED = SandboxStatus.PROVISIONING, SandboxStatus.STOPPED


@dataclass(frozen=True)
class Transition:
    """`starts` are the statuses an operation may begin in, `target` the status after its success.

    A `target` of None means that the status stays as it is. A sandbox that has the target already
    needs no operation. `doing` says in words that the operation is under way. `lane` is the node's
    queue that runs it. What is true after a failure the worker finds out on the host, see
    `nodeworker.handlers.failed_operations`.
    """

    starts: Set[SandboxStatus]
    target: SandboxStatus | None
    doing: str
    lane: Lane = Lane.OPS


# What callers asked for, where the operation has another name.
_ASKED = {OperationKind.SNAPSHOT: "a snapshot or a fork",
          OperationKind.ARCHIVE: "a copy of its files"}


def asked_for(kind: OperationKind) -> str:
    """The operation in words, as who asks for it would say."""
    return _ASKED.get(kind, f"to {kind.value}")


TRANSITIONS: dict[OperationKind, Transition] = {
    OperationKind.BOOT: Transition({_PROVISIONING}, _RUNNING, "booting"),
    OperationKind.HIBERNATE: Transition({_RUNNING}, _HIBERNATED, "hibernating"),
    OperationKind.WAKE: Transition({_HIBERNATED}, _RUNNING, "waking"),
    OperationKind.SNAPSHOT: Transition({_RUNNING, _HIBERNATED}, None, "being snapshotted"),
    OperationKind.ARCHIVE: Transition({_RUNNING}, None, "being archived", lane=Lane.ARCHIVE),
    OperationKind.GROW: Transition({_RUNNING}, None, "growing its disk"),
    OperationKind.FORWARD: Transition({_RUNNING}, None, "opening a port"),
    OperationKind.STOP: Transition({_PROVISIONING, _RUNNING, _HIBERNATED}, _STOPPED, "stopping",
                                   lane=Lane.CTL),
}


def still_to_come(status: SandboxStatus, task: OperationKind | None,
                  wanted: SandboxStatus) -> bool:
    """Whether a sandbox of this status, with `task` under way, has yet to come to `wanted` and may
    do so. False if it is there, unless the task leads away, and if no operation leads there any
    more."""
    if status != wanted:
        return wanted in _list_later(status)
    # A boot does not end `provisioning` early: it is what that status means.
    if task is None or task is OperationKind.BOOT:
        return False
    return TRANSITIONS[task].target not in (None, status)


def _list_later(status: SandboxStatus) -> Set[SandboxStatus]:
    """Every status that operations can bring a sandbox of this one to."""
    found: set[SandboxStatus] = set()
    left = [status]
    while left:
        start = left.pop()
        ways = {way.target for way in TRANSITIONS.values() if start in way.starts and way.target}
        left += ways - found
        found |= ways
    return found


def describe(status: str, task: str | None) -> str:
    """The state of a sandbox in words for an error message: `running`, or `running and
    hibernating`."""
    if task is None:
        return status
    return f"{status} and {TRANSITIONS[OperationKind(task)].doing}"
