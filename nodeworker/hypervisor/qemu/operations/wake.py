"""Wake a sandbox: restore its saved state, or boot it cold from its disk where there is none that
fits.

The saved state is consumed by one write (phase RUNNING), made when everything is loaded and the
guest has not moved yet. Before it, a failure or a crash leaves the sandbox saved; after it, RAM
without its process is worth nothing and the next try boots from disk.
"""
import logging
from dataclasses import replace

from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, LaunchSpec, RunningVm, VmNotFound
from nodeworker.hypervisor.qemu.guest import adoption
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.operations.create import mismatch
from nodeworker.hypervisor.qemu.operations.recover import recover
from nodeworker.hypervisor.qemu.process.launch import LoadFailed
from nodeworker.hypervisor.qemu.process.start import (
    FIRST_REPLY_LIMIT_S,
    Start,
    cold_boot,
    fresh_record,
    restore,
    stop,
)
from nodeworker.hypervisor.qemu.records import Phase, SandboxRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir, ram_is_whole

_log = logging.getLogger(__name__)


def wake(host: Host, spec: LaunchSpec) -> RunningVm:
    """See Driver.wake."""
    rundir = host.rundir(spec.sandbox_id)
    try:
        with rundir.operation():
            record = rundir.find_record()
            if record is None or record.task is Task.CREATE:
                raise VmNotFound(f"{spec.sandbox_id} was never completely created here")
            return _wake(host, rundir, spec, record)
    except FileNotFoundError as error:
        if rundir.path.exists():
            raise
        raise VmNotFound(f"no sandbox {spec.sandbox_id} on this host") from error


def _wake(host: Host, rundir: RunDir, spec: LaunchSpec, record: SandboxRecord) -> RunningVm:
    if rundir.is_alive():
        if record.phase is Phase.RUNNING:
            awake = _keep(host, rundir, spec, record)
            if awake is not None:
                return _answer(host, awake)
        stop(host, rundir, record)
        record = rundir.find_record() or record
    rundir.write_tokens(*rundir.tokens(), spec.agent_token,
                        host.image_for(record.machine).agent_token)
    reason = "no saved memory: its process ended without being hibernated"
    if ram_is_whole(record):
        reason = mismatch(record.machine, host.tuple_for(record.machine),
                          replace(spec, shape=record.machine.shape))
        if not reason:
            try:
                return _answer(host, _restore(host, rundir, spec, record))
            except LoadFailed as error:
                reason = str(error)
    return _answer(host, _cold(host, rundir, spec, record, reason), reason)


def _restore(host: Host, rundir: RunDir, spec: LaunchSpec, record: SandboxRecord) -> SandboxRecord:
    """Raises LoadFailed if the memory is of no use, which includes a guest that does not answer
    once restored."""
    waking = rundir.write(fresh_record(spec, record, phase=Phase.WAKING, task=Task.WAKE),
                          durable=True)
    fault("wake.begun")
    try:
        awake = restore(host, rundir, Start(spec, waking, renew=False, state=rundir.state))
    except LoadFailed:
        raise
    except Exception as error:
        found = rundir.find_record()
        if found is not None and found.phase is Phase.RUNNING:
            raise LoadFailed(f"the restored guest did not answer: {error}") from error
        rundir.write(fresh_record(spec, record, phase=Phase.SAVED, task=None), durable=True)
        raise
    rundir.state.unlink(missing_ok=True)
    return awake


def _cold(host: Host, rundir: RunDir, spec: LaunchSpec, record: SandboxRecord,
          reason: str) -> SandboxRecord:
    _log.warning("sandbox %s boots cold: %s", spec.sandbox_id, reason)
    machine = replace(record.machine, made_on=host.tuple_for(record.machine))
    booting = rundir.write(
        fresh_record(spec, replace(record, machine=machine), phase=Phase.RUNNING, task=Task.WAKE),
        durable=True)
    return cold_boot(host, rundir, Start(spec, booting, renew=False))


def _keep(host: Host, rundir: RunDir, spec: LaunchSpec,
          record: SandboxRecord) -> SandboxRecord | None:
    """Make a live VM what the spec says; None if it cannot be brought back to answering."""
    slot, completed = record.slot, record.task is None
    assert slot is not None
    try:
        if not completed:
            record = recover(host, rundir, record)
            rundir.write_tokens(*rundir.tokens(), spec.agent_token,
                                host.image_for(record.machine).agent_token)
            adoption.adopt(rundir, host, spec, record, renew=False, restored=True,
                           limit_s=FIRST_REPLY_LIMIT_S)
        kept = replace(record, agent_port=spec.agent_port, forwards=spec.forwards, task=None)
        record = rundir.write(kept, durable=False)
    except DriverError:
        _log.exception("sandbox %s is alive but cannot be brought back", spec.sandbox_id)
        return None
    host.network.forward(host.network.slots.slot(slot), record.host_ports(), fresh=False)
    return record


def _answer(host: Host, record: SandboxRecord, cold_reason: str = "") -> RunningVm:
    assert record.slot is not None
    address = host.network.slots.slot(record.slot).address
    return RunningVm(record.sandbox_id, address, bool(cold_reason), cold_reason)
