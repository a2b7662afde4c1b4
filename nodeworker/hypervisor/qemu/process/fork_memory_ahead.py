"""Gives the process of a fork its memory and its lower layers while its capture is still being
written down.

1. Once the source of a transient capture goes on, a thread takes a process that was started ahead
and makes it one with the captured memory (`assemble_machine.py`). 2. The boot of the fork, if it
follows in this worker, knows it by the memory file that it has borrowed, and takes it over. 3. One
that nobody comes for is ended: it is of use for this fork only. Who dies leaves a process that is
not ready and that nobody works on, which is ended with its directory.
"""
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from nodeworker.faults import fault
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process import prepared_processes
from nodeworker.hypervisor.qemu.process.assemble_machine import below_top, connect, make_machine
from nodeworker.hypervisor.qemu.process.prepared_processes import Prepared
from nodeworker.hypervisor.qemu.records import Machine
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)
# A boot that follows its capture comes within milliseconds.
_LONGEST_S = 2.0


class _Preparation(threading.Thread):
    """One process on its way to the fork whose memory is the file open as `ram`."""

    def __init__(self, host: Host, frozen: Machine, ram: int) -> None:
        super().__init__(name="given-ahead", daemon=True)
        self._host, self._frozen, self._ram = host, frozen, ram
        self._waiting: Prepared | None = None
        self._whole, self._wanted, self._used = (threading.Event() for _ in range(3))

    def run(self) -> None:
        try:
            with prepared_processes.taken(self._host, self._frozen) as waiting:
                if waiting is not None:
                    self._give(waiting)
        finally:
            self._whole.set()
            _forget(self)
            os.close(self._ram)

    def _give(self, waiting: Prepared) -> None:
        with ExitStack() as held:
            try:
                fault("given.taken")
                monitor = held.enter_context(connect(waiting))
                make_machine(self._host, waiting, monitor, self._frozen, self._ram)
                fault("given.made")
                self._waiting = replace(waiting, monitor=monitor)
            except Exception as error:
                _log.warning("the process %s is of no use: %s", waiting.rundir.sandbox_id, error)
            self._whole.set()
            if self._waiting is not None and (self._wanted.wait(_LONGEST_S) or not _forget(self)):
                held.pop_all()  # the connection is the taker's as well
                self._used.wait()
            else:
                prepared_processes.discard(self._host, waiting.rundir)

    def fits(self, vm: Vm) -> bool:
        """Whether it was made for the memory and the disk of this machine."""
        return (os.path.samestat(os.fstat(self._ram), os.stat(vm.rundir.ram))
                and self._frozen == below_top(vm.machine))

    @contextmanager
    def taken(self) -> Iterator[Prepared | None]:
        """The process, once it is whole; None if it could not be made. It is the caller's in the
        block, and locked."""
        self._wanted.set()
        self._whole.wait()
        try:
            yield self._waiting
        finally:
            self._used.set()


_under_way: list[_Preparation] = []
_list_lock = threading.Lock()


def begin(host: Host, frozen: Machine, ram: Path) -> None:
    """Begin to give the captured machine `frozen` a process; `ram` is its memory."""
    if host.settings.prepared_processes:
        # the fork's process will be confined in some 15 ms
        threading.Thread(target=host.cgroups.rouse, name="rouse", daemon=True).start()
        preparation = _Preparation(host, frozen, os.open(ram, os.O_RDWR | os.O_CLOEXEC))
        with _list_lock:
            _under_way.append(preparation)
        preparation.start()


@contextmanager
def taken(vm: Vm) -> Iterator[Prepared | None]:
    """What was made for this machine, for its start alone; None if there is nothing."""
    with _list_lock:
        found = next((each for each in _under_way if each.fits(vm)), None)
        if found is not None:
            _under_way.remove(found)
    if found is None:
        yield None
        return
    with found.taken() as waiting:
        yield waiting


def _forget(preparation: _Preparation) -> bool:
    """Nobody shall take it any more; False if somebody has."""
    with _list_lock:
        is_there = preparation in _under_way
        if is_there:
            _under_way.remove(preparation)
        return is_there
