"""Let the guest of a suspended process go on, by the steps of every restore but the start and the
load."""
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import MachineSpec
from nodeworker.hypervisor.qemu.disk import ram_room
from nodeworker.hypervisor.qemu.process.cpu_usage import new_baseline
from nodeworker.hypervisor.qemu.process.start_in_slot import continued
from nodeworker.hypervisor.qemu.restoring.restore import resume_guest, until_answered
from nodeworker.hypervisor.qemu.vm import Vm


def go_on(vm: Vm, spec: MachineSpec, *, renew: bool) -> None:
    """Let the guest go on in the suspended process that the record names, with the ports of the
    record; `renew` gives it a new identity. If that fails the process is gone, unless the guest is
    silent yet (StillStarting).

    Raises DriverError; `vm.record.starting` tells whether the guest has moved.
    """
    assert vm.record.task is not None
    task = vm.record.task.value
    with ThreadPoolExecutor(max_workers=2) as background:
        reserved = background.submit(ram_room.reserve, vm)
        with continued(vm, background) as begun:
            fault(f"{task}.spawned")
            with vm.monitor("resuming") as monitor:
                reserved.result()
                fault(f"{task}.loaded")
                vm.write(replace(vm.record, baseline=new_baseline(vm)), durable=False)
                resume_guest(vm, spec, begun, monitor)
            until_answered(vm, spec, begun, renew=renew)
