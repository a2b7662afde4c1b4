"""What a driver's sandbox must be after any operation, and the fault points of each operation."""
import subprocess
import time

import pytest

from guest.client.agent_client import AgentClient
from nodeworker.faults import FAULT_POINTS
from nodeworker.hypervisor.driver import VmState
from nodeworker.hypervisor.qemu.guest import first_answer
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.rundir import boot_id
from nodeworker.network.addresses import slot_capacity
from nodeworker.network.slots import NoSlot
from tests.host.driver_lab import SHAPE
from tests.stack.waiting import until


def points(operation):
    return [point for point in FAULT_POINTS if point.startswith(f"{operation}.")]


def before(operation, commit):
    """The points of an operation before the one at which it is past undoing."""
    names = points(operation)
    return names[:names.index(f"{operation}.{commit}")]


def check_alive(lab, spec, content):
    assert lab.driver.inspect(spec.sandbox_id) is VmState.RUNNING
    agent = lab.agent(spec)
    assert agent.ping(timeout_s=60).adopted == spec.sandbox_id
    assert agent.read_file("/home/user/note", 100) == content


def pid_of(lab, spec):
    return lab.driver.host.rundir(spec.sandbox_id).find_record().pid


def chain_of(lab, spec):
    """The disk layers of its record."""
    return lab.driver.host.rundir(spec.sandbox_id).chain()


def failing_once(monkeypatch, owner, name, error=None):
    """What the host does under this name fails once."""
    does = getattr(owner, name)

    def fail(*_, **__):
        monkeypatch.setattr(owner, name, does)
        raise error or OSError("the host fails")

    monkeypatch.setattr(owner, name, fail)


def check_is_itself(lab, spec):
    """It runs, with the identity and the environment of its own."""
    assert lab.driver.inspect(spec.sandbox_id) is VmState.RUNNING
    assert lab.agent(spec).ping().adopted == spec.sandbox_id
    assert lab.shell(spec, "hostname; echo $NUMBER").split() == [
        spec.sandbox_id, spec.env["NUMBER"]]


def check_clock(shell, guest):
    """The clock of a guest is right, however long the question takes; `shell(guest, line)` gives
    what a line says there. It is set to when the host wrote the request, which a guest without a
    CPU reads seconds later."""
    before_s = time.time()
    guest_s = float(shell(guest, "date +%s.%N"))
    assert before_s - 3 < guest_s < time.time() + 1


def listen_longer(replace):
    """Have a guest that was restored be listened to for as long as it takes: nobody comes back to
    it, or its answer is counted. `replace` is setattr, or monkeypatch's."""
    for name in ("_RESTORED_MOMENT_S", "_LONGEST_MOMENT_S"):
        replace(first_answer, name, 30.0)


def check_disk_limits(lab, spec):
    """Its QEMU has been told how fast the guest may use its disk."""
    with Monitor.of(lab.driver.host.rundir(spec.sandbox_id)) as monitor:
        (disk,) = monitor.run("query-block")
    most = lab.settings.vm_io_mb_s * 1024**2
    assert {disk["inserted"][name] for name in ("bps_rd", "bps_wr")} == {most}
    assert {disk["inserted"][name] for name in ("iops_rd", "iops_wr")} == {lab.settings.vm_iops}


def check_disks(lab):
    """Every layer of the node is sound (a live one is looked at through its lock)."""
    layers = list((lab.settings.node_dir / "layers").glob("*.qcow2"))
    assert layers
    for layer in layers:
        done = subprocess.run(["qemu-img", "check", "-U", str(layer)], capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def with_note(lab, content=b"first"):
    spec = lab.create()
    lab.agent(spec).write_file("/home/user/note", content)
    return spec


def note_rehearsals(monkeypatch):
    """Whether each guest that is adopted from now on is told to rehearse a command, in order."""
    listen_longer(monkeypatch.setattr)
    told, adopt = [], AgentClient.adopt

    def note(agent, identity, *arguments, **named):
        told.append(identity.rehearse)
        adopt(agent, identity, *arguments, **named)

    monkeypatch.setattr(AgentClient, "adopt", note)
    return told


def memory_copied_ahead(lab):
    """The file, once it is there: it is made a moment after a create."""
    template = lab.driver.host.warm_image_dir(SHAPE)
    folder = lab.settings.node_dir / "spares" / template.name
    until(lambda: any(folder.glob(f"*.{boot_id()}")))
    return next(folder.glob(f"*.{boot_id()}"))


def fill_slots(lab, leave):
    """Take every slot of the node but the `leave` that its machines have."""
    slots = lab.driver.host.network.slots
    for number in range(slot_capacity(lab.settings.slot_network) - leave):
        slots.claim(f"somebody-{number}")
    with pytest.raises(NoSlot):
        slots.claim("one more")


GROWN_BYTES = 20 * 1024**3


def check_grown(lab, spec, content):
    check_alive(lab, spec, content)
    assert lab.agent(spec).grow_disk(GROWN_BYTES).total_bytes > 0.95 * GROWN_BYTES
