"""Start QEMU processes ahead of need (see `prepared_processes.py`): one of each kind of machine
that was started lately, as many kinds as the node's setting allows."""
import logging
import os
import secrets
import threading
import time
from contextlib import ExitStack, suppress

from nodeworker.disks import qcow2
from nodeworker.faults import fault
from nodeworker.hypervisor import host_memory, locks
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process import argv, prepared_processes, qmp
from nodeworker.hypervisor.qemu.process.accelerator import device_groups
from nodeworker.hypervisor.qemu.process.argv import Hardware
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.hypervisor.qemu.process.qemu_process import QemuProcess, spawn
from nodeworker.hypervisor.qemu.process.start_qemu import open_layers
from nodeworker.hypervisor.qemu.records import Machine
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.network import namespaces
from nodeworker.network.addresses import GUEST_MAC, TAP_NAME, Slot
from nodeworker.network.nft import NftError
from nodeworker.network.slots import NoSlot

_log = logging.getLogger(__name__)
# After a start the CPU belongs to the guest and its first caller, not to the next one's process.
_CALM_S = 0.3
# About one in a hundred never answers: its monitor has read a command that came while it started,
# and sleeps on it. Later commands were never lost.
_TRIES, _ANSWER_LIMIT_S = 2, 2.0


def replace_in_background(host: Host, machine: Machine) -> None:
    """Start a process for the next machine like this one, a moment later and in a thread of its
    own, unless one stands ready."""
    if host.settings.prepared_processes and not _is_ready(host, machine):
        threading.Thread(target=_replace, args=(host, machine), name="prepare",
                         daemon=True).start()


def _is_ready(host: Host, machine: Machine) -> bool:
    kind = prepared_processes.kind_of(host, machine)
    return kind is None or prepared_processes.count(host, kind) > 0


def _replace(host: Host, machine: Machine) -> None:
    time.sleep(_CALM_S)
    try:
        prepare(host, machine)
    except (OSError, DriverError, NoSlot, NftError) as error:  # then the next one starts its own
        _log.warning("no QEMU could be started ahead: %s", error)


def prepare(host: Host, machine: Machine) -> None:
    """Start a process for the next machine like this one, unless one stands ready, memory is short
    or another process is at it. After a failure nothing of it is left."""
    with locks.nobody_at_work(host.prepared / "lock") as is_mine:
        if not is_mine or _is_ready(host, machine) or host_memory.is_short():
            return
        if prepared_processes.count(host) >= host.settings.prepared_processes:
            prepared_processes.end_eldest(host)
        for _ in range(_TRIES - 1):
            with suppress(DriverError):
                return _prepare(host, machine)
        _prepare(host, machine)


def _prepare(host: Host, machine: Machine) -> None:
    rundir = RunDir(host.prepared / f"{prepared_processes.PREFIX}{secrets.token_hex(6)}")
    kind = prepared_processes.kind_of(host, machine)
    assert kind is not None
    with rundir.operation(create=True):
        try:
            slot = host.network.claim(rundir.sandbox_id)
            fault("prepare.claimed")
            started = _start(host, machine, rundir, slot)
            try:
                fault("prepare.spawned")
                Monitor.of(rundir, started, _ANSWER_LIMIT_S).close()  # it answers once it stands
            finally:
                started.detach()
            prepared_processes.write_ready(rundir, kind, started, slot.number)
            fault("prepare.ready")
        except BaseException:
            prepared_processes.discard(host, rundir)
            raise


def _start(host: Host, machine: Machine, rundir: RunDir, slot: Slot) -> QemuProcess:
    shown = rundir.path / prepared_processes.SHOWN
    shown.mkdir(mode=0o711)
    image = host.image_for(machine)
    with ExitStack() as stack:
        def keep(descriptor: int) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        lock = keep(rundir.take_vm_lock())
        layers = open_layers(host, machine.base, keep, writes=False)
        tap = keep(namespaces.in_namespace(slot.namespace, lambda: namespaces.open_tap(TAP_NAME)))
        listener = stack.enter_context(qmp.listen(rundir.monitor))
        hardware = Hardware(
            name=f"{host.settings.net_prefix}/{rundir.sandbox_id}",
            machine=host.tuple_for(machine).machine.partition("/")[0],
            accelerator=host.accelerator, cpu=image.cpu, shape=machine.shape, ram_descriptor=None,
            layers=layers, tap_descriptor=tap, mac=GUEST_MAC, monitor_descriptor=listener.fileno(),
            incoming=True,
        )
        return spawn(
            argv.qemu_argv(hardware), uid=host.settings.vm_uid_base + slot.number,
            groups=device_groups(host.accelerator, host.settings.vm_uid_base),
            namespace=slot.namespace, empty=host.empty, shown=shown,
            descriptors=(lock, tap, listener.fileno(), *(layer.descriptor for layer in layers)),
            file_most_bytes=qcow2.most_bytes(machine.disk_bytes),
        )
