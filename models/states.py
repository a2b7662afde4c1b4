"""The words a row's state columns may hold; what may follow what is in
`services/operations/transitions.py`."""
import enum


class SandboxStatus(str, enum.Enum):
    """What the owner sees: stable, and true of the virtual machine."""

    PROVISIONING = "provisioning"
    RUNNING = "running"
    HIBERNATED = "hibernated"
    STOPPED = "stopped"


class SandboxKind(str, enum.Enum):
    """The contract's `kind` of a sandbox: made with an API key, or by a user's or service's token
    (our choice). The last two are the service's own: a deploy is built in a builder, and a runtime,
    which was one, serves an app; the app's owner neither sees nor controls them."""

    API = "api"
    APP = "app"
    BUILDER = "builder"
    RUNTIME = "runtime"


# Sandboxes of the service's own.
OWN_KINDS = (SandboxKind.BUILDER, SandboxKind.RUNTIME)


class PresetState(str, enum.Enum):
    """How the agent preset of a sandbox came out; nothing before that."""

    READY = "ready"
    FAILED = "failed"


class OperationKind(str, enum.Enum):
    """A lifecycle operation; while it runs, its name stands in the sandbox's `task` column."""

    BOOT = "boot"
    HIBERNATE = "hibernate"
    WAKE = "wake"
    SNAPSHOT = "snapshot"
    ARCHIVE = "archive"
    GROW = "grow"
    FORWARD = "forward"
    STOP = "stop"


# The operations that make a snapshot: of the whole machine, and of its project directory.
CAPTURES = (OperationKind.SNAPSHOT, OperationKind.ARCHIVE)


class Lane(str, enum.Enum):
    """A queue of a node with a worker of its own, so that none waits for what another does. CTL
    ends sandboxes, OPS makes and wakes them, BULK bakes, uploads and deletes. ARCHIVE moves large
    directories and disks, which takes minutes; DEPLOY works on the runs of deploys."""

    CTL = "ctl"
    OPS = "ops"
    BULK = "bulk"
    ARCHIVE = "archive"
    DEPLOY = "deploy"


class OperationState(str, enum.Enum):
    """Where an operation stands. WAITING needs another operation first; the last three are
    final."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SUPERSEDED = "superseded"


OPEN_STATES = (OperationState.WAITING, OperationState.PENDING, OperationState.RUNNING)


class SnapshotState(str, enum.Enum):
    """PENDING until captured; READY is a usable fork source; DELETING loses its files; FAILED and
    DELETED have none."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    DELETING = "deleting"
    DELETED = "deleted"


class SnapshotKind(str, enum.Enum):
    """The contract's `kind` of a snapshot: a whole machine, or its project directory as an archive
    in the store."""

    FULL = "user_project"
    FILES_ONLY = "files_only"


class WarmImageState(str, enum.Enum):
    """QUEUED waits for its turn, BAKING is at work; BAKED images are restored from; FAILED is tried
    again later."""

    QUEUED = "queued"
    BAKING = "baking"
    BAKED = "baked"
    FAILED = "failed"


class DeployStatus(str, enum.Enum):
    """BUILDING until its first version is live, FAILED if that came to nothing; LIVE serves."""

    BUILDING = "building"
    LIVE = "live"
    FAILED = "failed"


class RunState(str, enum.Enum):
    """QUEUED waits for a worker, RUNNING is in one's hands; the last two are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


OPEN_RUN_STATES = (RunState.QUEUED, RunState.RUNNING)


class RunStep(str, enum.Enum):
    """What a run does next: build in a builder. Of a static app: store what was built, and have the
    edges fetch it, upon which it goes live. Of one that is not: start it, see it ready, and, where
    the live version has a database, move that."""

    BUILD = "build"
    STORE = "store"
    STAGE = "stage"
    START = "start"
    READY = "ready"
    MOVE = "move"


class DeliveryState(str, enum.Enum):
    """PENDING waits for its time, SENDING is in a sender's hands; the last two are final."""

    PENDING = "pending"
    SENDING = "sending"
    DELIVERED = "delivered"
    DROPPED = "dropped"


OPEN_DELIVERY_STATES = (DeliveryState.PENDING, DeliveryState.SENDING)


class AttemptOutcome(str, enum.Enum):
    """UNKNOWN: its sender died before it had an answer; the receiver may or may not have got it."""

    UNDER_WAY = "under_way"
    DELIVERED = "delivered"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Plan(str, enum.Enum):
    """The plan of an account; which machine each includes is in `services/metering/plans.py`."""

    FREE = "free"
    STARTER = "starter"
    STARTER_PLUS = "starter_plus"
    PERSONAL = "personal"
    PRO = "pro"
    ALWAYS_ON = "always_on"
    LEGACY_PRO = "legacy_pro"
    LEGACY_MAX = "legacy_max"
