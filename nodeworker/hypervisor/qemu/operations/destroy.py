"""Remove a sandbox: process first, then its network, then those of its disk layers that nothing
else refers to, last the directory whose record names them.

`terminate` waits for nobody. An operation that is at work meanwhile may hold the sandbox's lock for
long (it flushes gigabytes, or listens for a guest) and may be about to start the process again:
1. The process is ended. 2. The run directory is put aside under a name that only we look at, and
with it the lock every process needs: from now on none can be started. 3. One that was started in
between is ended. The other operation finds its directory gone and fails.
"""
import logging
import os
from contextlib import suppress
from pathlib import Path

from nodeworker.disks.durable import list_old, remove_tree
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError, VmNotFound
from nodeworker.hypervisor.qemu.disk.release_layers import release_layers
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process.qemu_process import end_vm
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.hypervisor.qemu.vm import locked_vm
from nodeworker.network.nft import NftError

_ENDING = ".ending"
_log = logging.getLogger(__name__)


def destroy(host: Host, sandbox_id: str) -> None:
    """See Driver.destroy."""
    with suppress(VmNotFound), locked_vm(host, sandbox_id):
        _remove(host, sandbox_id)
    if _aside(host, sandbox_id).exists():  # an earlier try died
        _remove(host, sandbox_id)


def destroy_half_made(host: Host, sandbox_id: str) -> None:
    """Remove what a create that died has left; a sandbox that was completely created stays.

    Decided under the sandbox's lock: a create that is still at work when we look may finish while
    we wait for it. Raises VmBusy if it is at work for longer.
    """
    with suppress(VmNotFound), locked_vm(host, sandbox_id) as vm:
        if not vm.rundir.was_created():
            _remove(host, sandbox_id)


def terminate(host: Host, sandbox_id: str) -> None:
    """See Driver.terminate."""
    if host.rundir(sandbox_id).path.exists() or _aside(host, sandbox_id).exists():
        _remove(host, sandbox_id)


def end_put_aside(host: Host) -> None:
    """End the machines of run directories that a removal has put aside and not come to remove."""
    for path in host.trash.glob(f"*{_ENDING}"):
        end_vm(RunDir(path))


def finish_removals(host: Host) -> None:
    """Complete the removals whose worker died long ago and that nobody has come to complete.

    Decided under the sandbox's lock: what was created anew since then stays, with its network; its
    own removal takes along what was put aside. What cannot be removed stops nothing else.
    """
    for path in list_old(host.trash, f"*{_ENDING}"):
        rundir = host.rundir(path.name.removesuffix(_ENDING))
        try:
            with rundir.operation(create=True):
                if not rundir.was_created():
                    _remove(host, rundir.sandbox_id)
        except (DriverError, NftError, OSError) as error:
            _log.warning("what a removal left of sandbox %s stays: %s", rundir.sandbox_id, error)


def _remove(host: Host, sandbox_id: str) -> None:
    rundir, aside = host.rundir(sandbox_id), _aside(host, sandbox_id)
    fault("destroy.begun")
    end_vm(rundir)
    fault("destroy.killed")
    if rundir.path.exists() and aside.exists():
        _discard(host, aside, rundir)
    with suppress(FileNotFoundError):
        os.rename(rundir.path, aside)
    fault("destroy.put_aside")
    end_vm(RunDir(aside))
    host.network.release(sandbox_id)
    host.cgroups.remove(sandbox_id)
    fault("destroy.network_freed")
    _discard(host, aside, rundir)
    fault("destroy.files_removed")


def _discard(host: Host, aside: Path, rundir: RunDir) -> None:
    """The record goes last: if we die before, the next try still knows the layers."""
    end_vm(RunDir(aside))
    release_layers(host, rundir.path, RunDir(aside).chain())
    remove_tree(aside, host.trash)


def _aside(host: Host, sandbox_id: str) -> Path:
    return host.trash / f"{sandbox_id}{_ENDING}"
