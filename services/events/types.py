"""The events there are and what the `data` of each holds (contract, Platform webhooks;
docs/webhooks.md).

Fields may be added without notice, never renamed or removed: receivers ignore what they do not
know.
"""
import enum
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from services.camel_case import camel_case


class EventType(str, enum.Enum):
    """The contract's types, and the one that an operator sends to try a receiver."""

    SANDBOX_STARTED = "sandbox.started"
    SANDBOX_STOPPED = "sandbox.stopped"
    SNAPSHOT_RECORDED = "sandbox.snapshot.recorded"
    SNAPSHOT_UPLOADED = "sandbox.snapshot.uploaded"
    DEPLOY_SUCCEEDED = "deploy.succeeded"
    DEPLOY_FAILED = "deploy.failed"
    TEST = "webhook.test"


class Boot(str, enum.Enum):
    """Where a sandbox that started came from: nothing, or a machine that had been captured."""

    COLD = "cold"
    FORK = "fork"


class StopReason(str, enum.Enum):
    """Why a sandbox is stopped. The last two never ran."""

    DELETED = "deleted"
    STOPPED_BY_OPERATOR = "stopped_by_operator"
    FILES_LOST = "files_lost"
    BOOT_FAILED = "boot_failed"
    SOURCE_NOT_CAPTURED = "source_not_captured"


@dataclass(frozen=True)
class EventData:
    """Base of the `data` of all events."""

    TYPE: ClassVar[EventType]

    def to_json(self) -> dict[str, Any]:
        """The object as receivers see it."""
        return {camel_case(name): value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class SandboxStarted(EventData):
    """It booted and is reachable. A fork names its source, and the snapshot if it was made from one
    by id."""

    TYPE = EventType.SANDBOX_STARTED
    sandbox_id: str
    node_id: str
    boot: Boot
    source_sandbox_id: str | None = None
    snapshot_id: str | None = None


@dataclass(frozen=True)
class SandboxStopped(EventData):
    """It is gone; `error` says what the owner may know of a failure."""

    TYPE = EventType.SANDBOX_STOPPED
    sandbox_id: str
    node_id: str
    reason: StopReason
    error: str | None = None


@dataclass(frozen=True)
class _SnapshotData(EventData):
    snapshot_id: str
    source_sandbox_id: str
    node_id: str
    kind: str
    rootfs_sha: str
    size_bytes: int
    tarball_size_bytes: int


@dataclass(frozen=True)
class SnapshotRecorded(_SnapshotData):
    """It is captured and durable on its node, and can be forked there."""

    TYPE = EventType.SNAPSHOT_RECORDED


@dataclass(frozen=True)
class SnapshotUploaded(_SnapshotData):
    """Its root file system is in the object store; it can be forked on any node."""

    TYPE = EventType.SNAPSHOT_UPLOADED


@dataclass(frozen=True)
class DeploySucceeded(EventData):
    """The serving version has changed. `deploy_intent_id` is what the deploy was asked for with,
    untouched."""

    TYPE = EventType.DEPLOY_SUCCEEDED
    deploy_intent_id: str | None
    slug: str
    run_id: str


@dataclass(frozen=True)
class DeployFailed(EventData):
    """The deploy ended without changing what is served."""

    TYPE = EventType.DEPLOY_FAILED
    deploy_intent_id: str | None
    slug: str
    run_id: str
    error: str


@dataclass(frozen=True)
class Trial(EventData):
    """Nothing happened; an operator tries the receiver."""

    TYPE = EventType.TEST
    message: str
