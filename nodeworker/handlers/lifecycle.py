"""What each operation does on this host, and what is true of the sandbox afterwards; what is true
after a failure is told in `failed_operations.py`.

A handler may run again after `kill -9` at any instruction, and whenever it had to wait: the
driver's calls are repeatable, and the row is written only by `services/sandboxes/outcomes.py`,
under the epoch of the claim. No handler waits for a guest, see `nodeworker/not_yet.py`.
"""
import logging
from collections.abc import Callable

from guest.client.errors import AgentError, AgentTimeout
from models.database import connection, now, when_database_answers
from models.states import OperationKind, SandboxStatus, SnapshotState
from nodeworker import usage
from nodeworker.deploys.last_sync import sync_database
from nodeworker.error_texts import ENDED_BY_ITSELF
from nodeworker.faults import fault
from nodeworker.handlers import archives, presets
from nodeworker.handlers.agent_server import end_copied_server
from nodeworker.handlers.fetch_boot_source import bring_here
from nodeworker.handlers.machine_spec import machine_spec
from nodeworker.handlers.start_programs import WAITS, bring_up, up
from nodeworker.hypervisor.driver import MachineSpec, MemoryLost, RunningVm, VmState
from nodeworker.not_yet import NotYet, talk_s
from nodeworker.wiring import NodeDeps
from services.guest_calls.disk_growth import DEVICE_BYTES
from services.hosts import warm_images
from services.hosts.assignments import SandboxOnNode
from services.operations import claims, outbox
from services.operations.claims import Claim
from services.sandboxes.idle import restarted_clock
from services.sandboxes.outcomes import Outcome, report_columns, report_running
from services.snapshots import needed_on_node
from services.snapshots.needed_on_node import Origin

log = logging.getLogger(__name__)
_FLUSH, _FLUSH_LIMIT_S = "its guest to write to its disk", 10.0
Handler = Callable[[NodeDeps, Claim, SandboxOnNode], Outcome]
DISK_ALONE = "taken of the disk alone: the machine had ended by itself, so its copies boot cold"
COLD_BOOT = "cold boot: the warm image of this shape was not baked on this node yet"


def boot(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome:
    """Make the machine from its warm image or snapshot; `running` means the agent answers and the
    service and its agent preset are ready, or that the row says why they are not.

    Without a warm image it boots from the guest image's disk, which takes longer: the operation
    says so while it lasts and afterwards, and a warm image is baked for the next one. A copy of an
    archive is a machine from the warm image into which the archive has been unpacked. A copy of
    another node's snapshot boots from its disk, which is fetched first. Raises LeaseLost.
    """
    origin = needed_on_node.find_origin(claimed)
    packed, captured_id = origin.packed, origin.captured_id
    bring_here(deps, origin)
    sandbox = presets.find_image(deps, claimed, sandbox)
    spec = machine_spec(deps, sandbox, claimed, captured_id, shares_snapshot=origin.is_shared)
    baked = captured_id is not None or deps.driver.has_warm_image(spec.shape, presets=spec.presets)
    with connection():
        claims.check_held(claimed)  # its ports are another's if it was deleted during the fetch
        if not baked:
            claims.annotate(claimed, COLD_BOOT)
    prepared = claimed.waits_for in (*WAITS, presets.PRESET)
    if packed and claimed.attempts > 1 and not prepared and not _is_starting(deps, sandbox):
        # An earlier attempt may still be unpacking into the machine it made.
        deps.driver.destroy(sandbox.id)
    vm = deps.driver.create(spec)
    note = COLD_BOOT if not baked else _cold(vm) or claimed.note
    if not prepared:
        _prepare(deps, claimed, sandbox, origin, spec, note, baked=baked)
    try:
        if not captured_id:
            sandbox = presets.make_ready(deps, claimed, sandbox, vm)
        unready = bring_up(deps, claimed, sandbox, vm)
    except NotYet:
        # What starts in it may call the guest gateway, which knows it by its address. A database
        # that is away would hide what is waited for, and the next run prepare the machine anew.
        when_database_answers(lambda: report_columns(claimed, {"vm_ip": vm.vm_ip}))
        raise
    values = _running(vm) | {"started_at": now(), "operator_note": note}
    if not captured_id:
        values |= presets.columns(sandbox, unready)
    return up(values, unready, note)


def _prepare(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode, origin: Origin,
             spec: MachineSpec, note: str | None, *, baked: bool) -> None:
    """Do what comes before anything is started in a new machine: the operation says what is out of
    the ordinary, an archive is unpacked, the agent server of its source is ended in a copy."""
    if note is not None and note != claimed.note:
        with connection():
            claims.annotate(claimed, note)
    if not baked:
        _bake_for_the_next(deps, spec)
    if origin.packed:
        archives.load(deps, sandbox, origin.packed)
    if origin.captured_id:
        end_copied_server(deps, claimed, sandbox, origin.captured_id)
    else:
        presets.tell_in_guest(deps, sandbox)


def _is_starting(deps: NodeDeps, sandbox: SandboxOnNode) -> bool:
    """Whether its guest has not answered yet: nothing can have been unpacked into it."""
    return deps.driver.inspect(sandbox.id) is VmState.PARTIAL


def hibernate(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome:
    """Save the machine; `hibernated` means that everything needed to wake it is on disk."""
    if sandbox.status == SandboxStatus.HIBERNATED and deps.driver.inspect(
            sandbox.id) is VmState.SAVED:
        return Outcome(True, SandboxStatus.HIBERNATED)
    if claimed.waits_for != _FLUSH:  # else the database has had its time, and each would wait anew
        sync_database(deps, claimed, sandbox)
    _flush_guest(deps, claimed, sandbox)
    try:
        deps.driver.hibernate(sandbox.id)
    except MemoryLost as lost:
        log.warning("sandbox %s sleeps without its memory: %s", sandbox.id, lost)
        return Outcome(True, SandboxStatus.HIBERNATED, sandbox={"operator_note": ENDED_BY_ITSELF},
                       note=ENDED_BY_ITSELF)
    return Outcome(True, SandboxStatus.HIBERNATED)


def wake(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome:
    """Resume the machine, and return once its service is ready or has had its time; one that had to
    boot from its disk gets it started.

    The sandbox is `running` as soon as the machine is, also while its service is waited for.
    """
    vm = deps.driver.wake(machine_spec(deps, sandbox, claimed))
    values, note = _running(vm) | {"error": None}, _cold(vm) or claimed.note
    if vm.cold:
        values |= {"cold_boots": sandbox.cold_boots + 1, "operator_note": _cold(vm)}
        log.warning("sandbox %s was booted from its disk: %s", sandbox.id, vm.cold_reason)
    try:
        unready = bring_up(deps, claimed, sandbox, vm)
    except NotYet:
        if sandbox.status != SandboxStatus.RUNNING or vm.cold:
            counted = usage.read(deps, sandbox)
            # Only this run knows of a cold boot: the next one finds a machine that runs.
            when_database_answers(lambda: report_running(claimed, values, counted, note))
        raise
    return up(values, unready, note)


def snapshot(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome:
    """Capture the machine; the sandbox stays what it was."""
    assert claimed.snapshot_id is not None
    transient = needed_on_node.is_transient(claimed.snapshot_id)
    if sandbox.status == SandboxStatus.RUNNING and not transient:
        _flush_guest(deps, claimed, sandbox)
    facts = deps.driver.snapshot(sandbox.id, claimed.snapshot_id, transient=transient)
    return Outcome(
        True,
        sandbox.status,
        snapshot={
            "state": SnapshotState.READY,
            "size_bytes": facts.size_bytes,
            "pause_ms": facts.pause_ms,
        },
        note=None if facts.has_memory else DISK_ALONE,
    )


def archive(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome:
    """Store the project directory of the machine, which runs on."""
    assert claimed.snapshot_id is not None
    stored = archives.save(deps, sandbox, claimed.snapshot_id, claimed.epoch)
    return Outcome(
        True,
        sandbox.status,
        snapshot={
            "state": SnapshotState.READY,
            "archive_key": stored.key,
            "rootfs_sha": stored.sha,
            "size_bytes": stored.size_bytes,
            "tarball_size_bytes": stored.stored_bytes,
            "uploaded_to_store": True,
        },
    )


def _flush_guest(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> None:
    """Bring what the guest has written but only holds in memory onto its disk: a template in
    another shape, a wake whose memory is of no use, and whoever uses the uploaded disk, boot from
    it. A guest that does not answer is saved as it is. Raises NotYet."""
    if deps.driver.inspect(sandbox.id) is not VmState.RUNNING:
        return
    try:
        deps.agent(sandbox).sync(talk_s(claimed))
    except AgentError as error:
        if isinstance(error, AgentTimeout) and claimed.waited_for_s(_FLUSH) < _FLUSH_LIMIT_S:
            raise NotYet(_FLUSH) from error
        log.warning("the disk of %s is saved without being flushed: %s", sandbox.id, error)


def grow(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome:
    """Bring the disk under a running guest to the platform's floor; whoever asked lets the file
    system fill it."""
    deps.driver.grow_disk(sandbox.id, DEVICE_BYTES)
    return Outcome(True, sandbox.status)


def forward(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome:
    """Make the host ports that lead to a running guest those that are bound for it."""
    deps.driver.forward(machine_spec(deps, sandbox))
    return Outcome(True, sandbox.status)


def stop(deps: NodeDeps, claimed: Claim, sandbox: SandboxOnNode) -> Outcome:
    """Remove the machine and everything it owns on this host, whatever its guest does and whoever
    else is at work on it. One that may still replicate is waited for a while, until its last rows
    are stored; raises NotYet."""
    sync_database(deps, claimed, sandbox)
    fault("stop.synced")
    deps.driver.terminate(sandbox.id)
    return Outcome(True, SandboxStatus.STOPPED, sandbox={"stopped_at": now()})


HANDLERS: dict[OperationKind, Handler] = {
    OperationKind.BOOT: boot,
    OperationKind.HIBERNATE: hibernate,
    OperationKind.WAKE: wake,
    OperationKind.SNAPSHOT: snapshot,
    OperationKind.ARCHIVE: archive,
    OperationKind.GROW: grow,
    OperationKind.FORWARD: forward,
    OperationKind.STOP: stop,
}


def _running(vm: RunningVm) -> dict[str, object]:
    return {"vm_ip": vm.vm_ip} | restarted_clock()


def _cold(vm: RunningVm) -> str | None:
    return f"booted from disk: {vm.cold_reason}" if vm.cold else None


def _bake_for_the_next(deps: NodeDeps, spec: MachineSpec) -> None:
    kind = warm_images.Kind(deps.settings.node_id, spec.shape.vcpus, spec.shape.mem_mb,
                            spec.presets)
    with connection():
        outbox.flush(deps.queue, warm_images.want(kind))
