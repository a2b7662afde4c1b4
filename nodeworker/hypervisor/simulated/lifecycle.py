"""Create, hibernate and wake simulated sandboxes."""
import base64
import json
import secrets
from dataclasses import replace
from typing import Any

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, MachineSpec, MemoryLost, RunningVm, VmState
from nodeworker.hypervisor.host_facts import NO_MEMORY
from nodeworker.hypervisor.simulated.node import Record, SimulatedNode
from nodeworker.hypervisor.simulated.presets import RECORD


def create(node: SimulatedNode, spec: MachineSpec) -> RunningVm:
    """See Driver.create."""
    with node.operation("create", spec.sandbox_id, create=True):
        found = node.inspect(spec.sandbox_id)
        if found is VmState.RUNNING:
            return RunningVm(spec.sandbox_id, node.address)
        if found not in (VmState.SAVED, VmState.DISK_ONLY):
            try:
                return _create(node, spec)
            except BaseException:
                node.remove(spec.sandbox_id)
                raise
    return wake(node, spec)


def _create(node: SimulatedNode, spec: MachineSpec) -> RunningVm:
    guest, reason = _source(node, spec)
    shape = (spec.shape.vcpus, spec.shape.mem_mb)
    node.simulator.ask("stop", sandbox_id=spec.sandbox_id)
    record = Record(shape, False, "create", guest).write(node.record_path(spec.sandbox_id))
    fault("create.recorded")
    _run(node, spec, record, renew=True)
    replace(record, task=None).write(node.record_path(spec.sandbox_id))
    return RunningVm(spec.sandbox_id, node.address, bool(reason), reason)


def _source(node: SimulatedNode, spec: MachineSpec) -> tuple[dict[str, Any], str]:
    if spec.snapshot_id is None:
        is_baked = node.warm_image(spec.shape, presets=spec.presets).exists()
        return _blank(node, spec), "" if is_baked else "this shape is not baked yet"
    snapshot = node.get_snapshot(spec.snapshot_id)
    if not snapshot["facts"].get("has_memory", True):
        return _rebooted(snapshot["guest"]), NO_MEMORY
    if tuple(snapshot["shape"]) != (spec.shape.vcpus, spec.shape.mem_mb):
        return _rebooted(snapshot["guest"]), "its memory is of another shape"
    return dict(snapshot["guest"]), ""


def _blank(node: SimulatedNode, spec: MachineSpec) -> dict[str, Any]:
    """What the image holds that the machine starts from."""
    if not spec.presets:
        return node.blank
    record = json.dumps(node.presets.record()).encode()
    return {**node.blank, "files": {RECORD: base64.b64encode(record).decode()}}


def _run(node: SimulatedNode, spec: MachineSpec, record: Record, *, renew: bool) -> None:
    task = record.task
    node.simulator.ask("start", sandbox_id=spec.sandbox_id, address=node.address,
                       port=spec.agent_port, guest=record.guest, forwards=_pairs(spec))
    fault(f"{task}.spawned")
    fault(f"{task}.loaded")
    if task == "wake":
        replace(record, saved=False).write(node.record_path(spec.sandbox_id))
    fault(f"{task}.marked")
    fault(f"{task}.running")
    adoption = {
        "newToken": spec.agent_token, "sandboxId": spec.sandbox_id, "env": spec.env,
        "renew": renew, "machineId": secrets.token_hex(16), "hostname": spec.sandbox_id
    }
    node.simulator.ask("adopt", sandbox_id=spec.sandbox_id, request=adoption)
    fault(f"{task}.adopted")


def hibernate(node: SimulatedNode, sandbox_id: str) -> None:
    """See Driver.hibernate."""
    with node.operation("hibernate", sandbox_id):
        record, path = node.get_record(sandbox_id), node.record_path(sandbox_id)
        if not record.saved:
            if sandbox_id not in node.simulator.running():
                raise MemoryLost(f"the process of {sandbox_id} ended by itself; its disk is left")
            record = _save(node, sandbox_id, record)
        node.simulator.ask("stop", sandbox_id=sandbox_id)
        replace(record, task=None).write(path)
        fault("hibernate.ended")


def _save(node: SimulatedNode, sandbox_id: str, record: Record) -> Record:
    path = node.record_path(sandbox_id)
    replace(record, task="hibernate").write(path)
    try:
        for point in ("begun", "stopped", "state_written", "flushed"):
            fault(f"hibernate.{point}")
        guest = node.simulator.ask("state", sandbox_id=sandbox_id)["guest"]
    except BaseException:
        replace(record, task=None).write(path)
        raise
    record = replace(record, saved=True, task=None, guest=guest).write(path)
    fault("hibernate.saved")
    return record


def wake(node: SimulatedNode, spec: MachineSpec) -> RunningVm:
    """See Driver.wake."""
    with node.operation("wake", spec.sandbox_id):
        record, path = node.get_record(spec.sandbox_id), node.record_path(spec.sandbox_id)
        alive = spec.sandbox_id in node.simulator.running()
        reason = (
            ""
            if record.saved or alive
            else "no saved memory: its process ended without being hibernated"
        )
        if record.saved:
            node.simulator.ask("stop", sandbox_id=spec.sandbox_id)
        if record.saved or record.task or not alive:
            guest = _rebooted(record.guest) if reason else record.guest
            waking = replace(record, task="wake", guest=guest).write(path)
            try:
                fault("wake.begun")
                _run(node, spec, waking, renew=False)
            except BaseException:
                node.simulator.ask("stop", sandbox_id=spec.sandbox_id)
                replace(record, task=None).write(path)
                raise
            replace(record, saved=False, task=None).write(path)
        else:
            node.simulator.ask("forward", sandbox_id=spec.sandbox_id, forwards=_pairs(spec))
        return RunningVm(spec.sandbox_id, node.address, bool(reason), reason)


def forward(node: SimulatedNode, spec: MachineSpec) -> None:
    """See Driver.forward."""
    with node.operation("forward", spec.sandbox_id):
        if node.inspect(spec.sandbox_id) is not VmState.RUNNING:
            raise DriverError(f"{spec.sandbox_id} does not run")
        node.simulator.ask("forward", sandbox_id=spec.sandbox_id, forwards=_pairs(spec))


def _pairs(spec: MachineSpec) -> list[tuple[int, int]]:
    return [(each.host_port, each.guest_port) for each in spec.forwards]


def _rebooted(guest: dict[str, Any]) -> dict[str, Any]:
    """What a cold boot leaves of a guest: its files."""
    return dict(guest) | {"listening": [], "servers": []}
