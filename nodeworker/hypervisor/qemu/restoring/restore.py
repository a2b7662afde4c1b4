"""Restore a guest from a saved device state and its RAM, for create, wake and spares.

The order makes a crash harmless:
1. Slot, host ports, QEMU started stopped; RAM is put in place and reserved meanwhile
   (`prepare_ram`).
2. Device state loaded; still nothing has touched RAM.
3. The record says RUNNING: from here the RAM file is worth nothing without the process. If it was
   borrowed (`images/lent_memory.py`), its lender has it no more. Where the host fails to confine
   the guest, which has not moved then, the record says again what it said.
4. `cont`; the agent is adopted (clock, randomness, token; for a clone a new identity); once the
   host ports lead to the guest as well the task is over.
"""
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import MachineSpec
from nodeworker.hypervisor.qemu.guest.first_answer import await_answer, began
from nodeworker.hypervisor.qemu.images.lent_memory import hand_over
from nodeworker.hypervisor.qemu.process.monitor import LoadFailed, Monitor
from nodeworker.hypervisor.qemu.process.qmp import QmpError
from nodeworker.hypervisor.qemu.process.start_in_slot import Stopped, started
from nodeworker.hypervisor.qemu.records import Phase, Task
from nodeworker.hypervisor.qemu.vm import Vm


def restore(vm: Vm, spec: MachineSpec, state: Path, *, renew: bool,
            prepare_ram: Callable[[], None]) -> None:
    """Start the guest from the device state in the file `state`; `renew` gives it a new identity.

    Raises LoadFailed if the state is of no use, with RAM still whole; StillStarting if all went
    well but that the guest is silent yet; another DriverError if the host failed: the record says
    whether RAM is whole.
    """
    task = _task(vm)
    with ThreadPoolExecutor(max_workers=3) as background:
        prepared = background.submit(prepare_ram)
        with started(vm, state, background) as begun:
            fault(f"{task}.spawned")
            launched = begun.launched
            with vm.monitor("restoring", launched.process,
                            connected=launched.monitor) as monitor:
                prepared.result()
                assert launched.state is not None
                _load(monitor, launched.state, spec)
                fault(f"{task}.loaded")
                resume_guest(vm, spec, begun, monitor)
            until_answered(vm, spec, begun, renew=renew)


def _load(monitor: Monitor, state: str, spec: MachineSpec) -> None:
    """A QEMU that ends meanwhile may do so at every try; the last one gives the state up."""
    try:
        monitor.load(state)
    except QmpError as error:
        if spec.is_last_try:
            raise LoadFailed(f"loading the saved state: {error}") from error
        raise


def resume_guest(vm: Vm, spec: MachineSpec, begun: Stopped, monitor: Monitor) -> None:
    """Say in the record that memory is worth nothing without the process, then let the guest
    execute. If the host fails before it may, memory is whole, and the record says so again."""
    before = vm.record
    vm.write(replace(before, phase=Phase.RUNNING, starting=began()), durable=False)
    try:
        fault(f"{_task(vm)}.marked")
        if vm.record.task is Task.SPARE:
            vm.host.network.cut_off(vm.slot)
        begun.confine(monitor)
        # Last, for it cannot be taken back: who tries again needs the capture's memory.
        hand_over(vm.host, spec)
    except Exception:
        vm.write(before, durable=False)
        raise
    monitor.cont()


def until_answered(vm: Vm, spec: MachineSpec, begun: Stopped, *, renew: bool) -> None:
    """Adopt the guest; once its host ports lead to it as well the start is over. Raises what
    `await_answer` raises, and StillStarting while they do not."""
    task = _task(vm)
    fault(f"{task}.running")
    await_answer(vm, spec, renew=renew)
    begun.wait_reachable()
    fault(f"{task}.adopted")
    vm.write(replace(vm.record, task=None, starting=None), durable=task == "create")


def _task(vm: Vm) -> str:
    return vm.record.task.value if vm.record.task else "wake"
