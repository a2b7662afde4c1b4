"""The run directory of one sandbox: its locks, its record and its files, and what they say about
the sandbox.

`op.lock` is held during a driver call. `vm.lock` is taken before QEMU starts and inherited by it,
so the kernel itself allows one VM per sandbox and frees the lock the instant the process dies. What
is true follows from three facts:
1. Is vm.lock held? Then a process lives; one that is kept (`suspended/kept_machines.py`) does not
   count.
2. The phase in its record (vm.json, and vm.now for what need not survive a power failure), and
   whether the host has been rebooted since.
3. The task in its record: an operation at work, or one that died.
"""
import errno
import os
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nodeworker.disks import reserve_blocks
from nodeworker.disks.durable import read_json, write_json
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import NoDiskSpace, VmState
from nodeworker.hypervisor.qemu.records import Phase, SandboxRecord, Task


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Names this run of the host's kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class RunDir:
    """`<node_dir>/sandboxes/<id>`; files are root's, mode 0600, inside a 0700 directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ram = path / "ram"
        self.state = path / "state"
        self.monitor = path / "qmp.sock"
        self._durable = path / "vm.json"
        self._volatile = path / "vm.now"
        self._tokens = path / "tokens"
        self._vm_lock = path / "vm.lock"
        self._operation_lock = path / "op.lock"

    @property
    def sandbox_id(self) -> str:
        """The directory's name."""
        return self.path.name

    def operation(self, *, create: bool = False) -> AbstractContextManager[None]:
        """Hold this sandbox's operation lock; raises VmBusy, or FileNotFoundError without directory
        (unless `create`)."""
        return locks.locked(self._operation_lock, make_directory=create)

    def nobody_at_work(self) -> AbstractContextManager[bool]:
        """True, and the operation lock held in the block, if nobody holds it; False also without
        directory."""
        return locks.nobody_at_work(self._operation_lock)

    def take_vm_lock(self) -> int:
        """The descriptor QEMU must inherit; raises VmBusy if a process holds the lock (a probe lets
        go within moments)."""
        return locks.wait_lock(self._vm_lock)

    def is_alive(self) -> bool:
        """True while a process holds vm.lock, found by trying for it."""
        return locks.is_locked(self._vm_lock)

    def is_busy_or_alive(self) -> bool:
        """True while a process lives or an operation is at work."""
        return locks.is_locked(self._operation_lock) or self.is_alive()

    def vm_lock_inode(self) -> tuple[int, int] | None:
        """Device and inode of vm.lock, to find the process that inherited it."""
        try:
            status = os.stat(self._vm_lock)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def find_record(self) -> SandboxRecord | None:
        """The record as last written; None if there is none or it is not whole."""
        return self._newest(_parse(read_json(self._durable)))

    def _newest(self, durable: SandboxRecord | None) -> SandboxRecord | None:
        volatile = read_json(self._volatile) or {}
        this_boot = volatile if volatile.pop("written_in", None) == boot_id() else None
        records = [record for record in (durable, _parse(this_boot)) if record is not None]
        return max(records, key=lambda record: record.revision, default=None)

    def chain(self) -> tuple[str, ...] | None:
        """The disk layers its record names, none without a record. None (not known) while the
        durable record is there and cannot be read."""
        durable = _parse(read_json(self._durable))
        if durable is None and self._durable.exists():
            return None
        record = self._newest(durable)
        return record.machine.chain if record else ()

    def was_created(self) -> bool:
        """True once a create has been completed: its last step makes the first durable record."""
        return self._durable.exists()

    def write(self, record: SandboxRecord, *, durable: bool) -> SandboxRecord:
        """Replace the record; `durable` where a power failure must not bring an older one back.

        The others go to a file of their own that is believed in this boot of the host only: a file
        that was renamed but not flushed may be empty after a power failure, and would take the
        durable record with it.
        """
        known = self.find_record()
        record = replace(record, revision=known.revision + 1 if known else 1)
        if durable:
            write_json(self._durable, record.to_json())
        else:
            write_json(self._volatile, {**record.to_json(), "written_in": boot_id()}, durable=False)
        return record

    def tokens(self) -> tuple[str, ...]:
        """Agent tokens the guest may be asking for, the likeliest first."""
        record = read_json(self._tokens)
        return tuple(record["tokens"]) if record else ()

    def write_tokens(self, *tokens: str, durable: bool = True, named: bool = True) -> None:
        """Remember the tokens the guest may be asking for, without doubles and empty ones;
        `durable` unless a power failure ends the whole machine, `named` unless a durable record
        is written next."""
        write_json(self._tokens,
                   {"tokens": list(dict.fromkeys(token for token in tokens if token))},
                   durable=durable, named=named)

    def add_tokens(self, *tokens: str) -> None:
        """As `write_tokens` with those that are remembered before them; most often they all are
        already, and nothing is written."""
        known = self.tokens()
        if set(tokens) - {*known}:
            self.write_tokens(*known, *tokens)

    def inspect(self) -> VmState | None:
        """What is true of this sandbox; None if there is nothing but an empty directory."""
        alive, record = self.is_alive(), self.find_record()
        if record is None:
            return VmState.PARTIAL if alive or self._has_files() else None
        if record.task is Task.CREATE:
            return VmState.PARTIAL
        if alive and record.kept_since_s is None:
            return (
                VmState.RUNNING
                if record.phase is Phase.RUNNING and record.task is None
                else VmState.PARTIAL
            )
        return VmState.SAVED if ram_is_whole(record) else VmState.DISK_ONLY

    def make_ram(self, mem_mb: int) -> None:
        """Make an empty, sparse RAM file of full size in place of any old one."""
        self.ram.unlink(missing_ok=True)
        descriptor = os.open(self.ram, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, mem_mb * 1024 * 1024)
        finally:
            os.close(descriptor)

    def reserve_ram(self) -> None:
        """Make sure that the guest can write to all of its memory, whatever fills the disk
        meanwhile. Raises NoDiskSpace."""
        try:
            reserve_blocks.reserve(self.ram)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise NoDiskSpace(f"no room for the memory of {self.sandbox_id}: {error}") from error

    def release_ram(self) -> None:
        """Give back what a sleeping guest has never used of its memory."""
        reserve_blocks.release(self.ram)

    def remove_files(self) -> None:
        """Remove everything but the operation lock, which the caller holds."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _has_files(self) -> bool:
        return bool(self._files())

    def _files(self) -> list[Path]:
        return [path for path in self.path.glob("*")
                if path != self._operation_lock] if self.path.is_dir() else []


def ram_is_whole(record: SandboxRecord) -> bool:
    """Whether RAM and device state of a sandbox without a process may be restored."""
    if record.phase is Phase.WAKING:
        return record.boot_id == boot_id()
    return record.phase is Phase.SAVED


def _parse(record: dict[str, Any] | None) -> SandboxRecord | None:
    try:
        return SandboxRecord.from_json(record) if record else None
    except (KeyError, TypeError, ValueError):
        return None
