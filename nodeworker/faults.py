"""Named points in the VM driver and the job runner at which a test may kill, fail or delay the
process.

Without a fault file they do nothing. The environment variable SVC_FAULT_FILE names a file with
`<point> kill`, `<point> raise` or `<point> sleep:<seconds>`. The first process that reaches the
point takes the file away, so that a fault acts once, and then acts.
"""
import os
import signal
import time

# Every point, in the order an operation passes them. Tests run over this tuple.
FAULT_POINTS = (
    "create.recorded",
    "create.spawned",
    "create.loaded",
    "create.marked",
    "create.running",
    "create.adopted",
    "spare.recorded",
    "spare.spawned",
    "spare.loaded",
    "spare.marked",
    "spare.running",
    "spare.adopted",
    "spare.stopped",
    "spare.ready",
    "spare.taken",
    "spare.handed_over",
    "spare.exchanged",
    "prepare.claimed",
    "prepare.spawned",
    "prepare.ready",
    "given.taken",
    "given.made",
    "prepared.taken",
    "prepared.handed_over",
    "prepared.assembled",
    "prepared.locked",
    "hibernate.begun",
    "hibernate.stopped",
    "hibernate.state_written",
    "hibernate.flushed",
    "hibernate.saved",
    "hibernate.ended",
    "boot.spawned",
    "wake.begun",
    "wake.spawned",
    "wake.loaded",
    "wake.marked",
    "wake.running",
    "wake.adopted",
    "snapshot.looked",
    "snapshot.begun",
    "snapshot.layer_recorded",
    "snapshot.ram_begun",
    "snapshot.stopped",
    "snapshot.switched",
    "snapshot.state_written",
    "snapshot.ram_copied",
    "snapshot.resumed",
    "snapshot.flushed",
    "snapshot.complete",
    "fetch.image_written",
    "fetch.imported",
    "grow.recorded",
    "grow.resized",
    "destroy.begun",
    "destroy.killed",
    "destroy.put_aside",
    "destroy.network_freed",
    "destroy.files_removed",
    "archive.begun",
    "archive.stored",
    "unarchive.emptied",
    "unarchive.unpacked",
    "preset.given_up",
    "preset.started",
    "preset.ended",
    "service.started",
    "start.begun",
    "reclaim.half_made_seen",
    "reclaim.stale_forward_seen",
    "reconcile.orphan_seen",
    "delete.begun",
    "delete.files_removed",
    "collect.unlinked",
    "delete.here",
    "delete.objects_removed",
    "upload.image_stored",
    "upload.stored",
    "sweep.image_removed",
    "agent_server.written",
    "agent_server.started",
    "boot.failed",
    "stop.synced",
    "deploy.claimed",
    "deploy.builder_begun",
    "deploy.build_begun",
    "deploy.built",
    "deploy.prefix_kept",
    "deploy.stored",
    "deploy.staged",
    "deploy.adopted",
    "deploy.app_started",
    "deploy.ready",
    "deploy.prepared",
    "deploy.fenced",
    "deploy.frozen",
    "deploy.restored",
    "deploy.moved",
    "deploy.published",
    "deploy.failing",
    "runner.claimed",
    "runner.handled",
    "runner.finished",
    "runner.went_on",
    "runner.parking",
    "runner.parked",
    "bake.spawned",
    "bake.saved",
    "bake.complete",
)


class InjectedFault(Exception):
    """A fault file asked for a failure at this point."""


def fault(point: str) -> None:
    """Act on the fault file if it names `point`; `point` must be one of FAULT_POINTS."""
    path = os.environ.get("SVC_FAULT_FILE")
    if not path or not os.path.exists(path):
        return
    assert point in FAULT_POINTS, point
    action = _take(path, point)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "raise":
        raise InjectedFault(f"injected at {point}")
    elif action.startswith("sleep:"):
        time.sleep(float(action.removeprefix("sleep:")))


def _take(path: str, point: str) -> str:
    """The action for `point`, with the file renamed away; empty if it is for another point or
    someone else took it."""
    try:
        with open(path, encoding="ascii") as stream:
            wanted, _, action = stream.read().strip().partition(" ")
        if wanted != point:
            return ""
        os.rename(path, f"{path}.done")
    except FileNotFoundError:
        return ""
    return action
