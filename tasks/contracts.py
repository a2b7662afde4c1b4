"""Every job there is: its name and what its payload holds. Producers know the names, only consumers
the functions."""
from dataclasses import dataclass, fields
from typing import Any

from models.states import OperationKind
from services.deploys import runs
from services.hosts import warm_images
from services.operations.announcements import job_name
from services.snapshots import deletion, disk_upload


@dataclass(frozen=True)
class OperationPayload:
    """Announces an operation; the worker claims it by these two."""

    sandbox_id: str
    op_seq: int


@dataclass(frozen=True)
class ShapePayload:
    """Names a warm image: a machine shape, with the agent presets or without."""

    vcpus: int
    mem_mb: int
    presets: bool


@dataclass(frozen=True)
class SnapshotPayload:
    """Names a snapshot."""

    snapshot_id: str


@dataclass(frozen=True)
class RunPayload:
    """Names a run of a deploy."""

    run: int


@dataclass(frozen=True)
class PrefixPayload:
    """Names a prefix of the object store that nothing needs."""

    prefix: str


@dataclass(frozen=True)
class ReceiverPayload:
    """Names a webhook receiver, see `services.events.receivers`."""

    receiver: str


@dataclass(frozen=True)
class NoPayload:
    """A tick."""


IDLE_SWEEP = "control.idle.sweep"
OPERATIONS_SWEEP = "control.operations.sweep"
EXPIRY_SWEEP = "control.expiry.sweep"
LLM_SWEEP = "control.llm.sweep"
WEBHOOKS_SWEEP = "control.webhooks.sweep"
WEBHOOKS_DELIVER = "control.webhooks.deliver"
WEBHOOKS_TIDY = "control.webhooks.tidy"
SAMPLE_ALL = "control.usage.sample"
SAMPLE = "node.usage.sample"
BAKE = warm_images.JOB
UPLOAD = disk_upload.JOB
DELETE_SNAPSHOT = deletion.JOB
STORE_SWEEP = "node.store.sweep"
STORE_SWEEP_ANY = "control.store.sweep"
DEPLOY_RUN = runs.JOB
DEPLOYS_SWEEP = "control.deploys.sweep"
REMOVE_PREFIX = "node.deploy.remove_prefix"
DISK_SAMPLE = "node.disk.sample"
DISK_SAMPLE_ALL = "control.disk.sample"

CONTROL_QUEUE = "control"
# Apart from `control`, so that neither a slow receiver nor a busy control plane delays the other.
WEBHOOKS_QUEUE = "webhooks"
# A tick more frequent than this (s) lives for this long: the clocks of two hosts may differ by more
# than its interval.
TICK_LIFE_S = 2.0

JOBS: dict[str, type] = {
    **{job_name(kind): OperationPayload for kind in OperationKind},
    IDLE_SWEEP: NoPayload,
    OPERATIONS_SWEEP: NoPayload,
    EXPIRY_SWEEP: NoPayload,
    LLM_SWEEP: NoPayload,
    WEBHOOKS_SWEEP: NoPayload,
    WEBHOOKS_DELIVER: ReceiverPayload,
    WEBHOOKS_TIDY: NoPayload,
    SAMPLE_ALL: NoPayload,
    SAMPLE: NoPayload,
    BAKE: ShapePayload,
    UPLOAD: SnapshotPayload,
    DELETE_SNAPSHOT: SnapshotPayload,
    DEPLOY_RUN: RunPayload,
    DEPLOYS_SWEEP: NoPayload,
    REMOVE_PREFIX: PrefixPayload,
    STORE_SWEEP: NoPayload,
    STORE_SWEEP_ANY: NoPayload,
    DISK_SAMPLE: NoPayload,
    DISK_SAMPLE_ALL: NoPayload,
}


def parse(job: str, payload: dict[str, Any]) -> Any:
    """The payload of `job` as its record; raises ValueError for an unknown job, a missing, extra or
    ill-typed field."""
    if job not in JOBS:
        raise ValueError(f"no such job: {job}")
    kind = JOBS[job]
    names = {item.name: item.type for item in fields(kind)}
    if set(payload) != set(names):
        raise ValueError(f"{job} takes {sorted(names)}, got {sorted(payload)}")
    for name, wanted in names.items():
        if type(payload[name]) is not wanted:
            raise ValueError(f"{job}: {name} must be {wanted}")
    return kind(**payload)
