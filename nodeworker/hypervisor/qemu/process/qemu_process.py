"""Start and end QEMU processes: unprivileged, in a session and namespace of their own, identified
beyond their pid."""
import errno
import os
import resource
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.process.private_view import take_private_view
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.network.namespaces import in_namespace

_END_WAIT_S = 10.0
_OURS = ("qemu-system", "setpriv", "prlimit")
# Started by this worker and not yet collected; VMs outlive the worker, so this is only about
# zombies.
_children: dict[int, "subprocess.Popen[bytes]"] = {}


@dataclass(frozen=True)
class QemuProcess:
    """A started process; `errors` is the read end of its stderr (a pipe, so that a guest cannot
    fill a disk with it), None if nobody listens to it."""

    pid: int
    start_ticks: int
    errors: int | None

    def error_output(self) -> str:
        """What it has written to stderr so far, shortened; does not wait."""
        if self.errors is None:
            return ""
        poller = select.poll()  # select fails above 1023 open files
        poller.register(self.errors, select.POLLIN)
        ready = poller.poll(0)
        return os.read(self.errors, 4096).decode(errors="replace").strip() if ready else ""

    def detach(self) -> None:
        """Stop listening to stderr; what QEMU writes there from now on is lost, which it bears."""
        if self.errors is not None:
            os.close(self.errors)


def start_ticks(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; with the pid it names one process for ever.
    None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])


def spawn(argv: list[str], *, uid: int, groups: tuple[int, ...], namespace: str, empty: Path,
          descriptors: tuple[int, ...], file_most_bytes: int,
          shown: Path | None = None) -> QemuProcess:
    """Start `argv` as user and group `uid` inside the network `namespace`, with a view of its own
    of this host.

    In that the directory `empty` covers data, and `shown` is to be seen, if given. The process
    inherits exactly `descriptors` and can make none of their files larger than `file_most_bytes`.
    """
    supplementary = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    command = [
        "prlimit", f"--fsize={file_most_bytes}", "setpriv", f"--reuid={uid}", f"--regid={uid}",
        supplementary, "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", *argv
    ]
    reader, writer = os.pipe2(os.O_CLOEXEC)
    _reap()
    # Inherited by QEMU: a core file would hold a guest's memory (this worker's own would hold its
    # secrets).
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    def start() -> "subprocess.Popen[bytes]":
        take_private_view(empty, shown)
        # Signals stay as in this Python: a file at its limit is an error for QEMU, not its end.
        return subprocess.Popen(
            command, pass_fds=descriptors, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=writer, start_new_session=True, cwd="/", env={"PATH": os.defpath},
            restore_signals=False,
        )

    try:
        process = in_namespace(namespace, start)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    _children[process.pid] = process
    return QemuProcess(process.pid, start_ticks(process.pid) or 0, reader)


def end_vm(rundir: RunDir) -> None:
    """Kill the VM of this run directory and wait until it is gone; afterwards vm.lock is free. None
    alive: no-op.

    The recorded process is killed if pid and start time fit; otherwise whoever inherited vm.lock is
    looked for, which covers a worker that died between starting QEMU and writing its pid down.
    """
    record = rundir.find_record()
    deadline = time.monotonic() + _END_WAIT_S
    while rundir.is_alive():
        if record is None or record.pid is None or not _kill(record.pid, record.start_ticks):
            for holder in _lock_holders(rundir):
                _kill(holder, start_ticks(holder))
        if time.monotonic() > deadline:
            raise DriverError(f"the VM process of {rundir.sandbox_id} does not end")
        time.sleep(0.002)
    _reap()


def _kill(pid: int, ticks: int | None) -> bool:
    """Kill `pid` if it is the process that started at `ticks`; the pidfd keeps the number from
    changing hands meanwhile."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_ticks(pid) != ticks:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def _reap() -> None:
    """Collect children that have ended; other threads start and collect some meanwhile."""
    for pid, child in _children.copy().items():
        if child.poll() is not None:
            _children.pop(pid, None)


def _lock_holders(rundir: RunDir) -> list[int]:
    """Processes started by us that have this run directory's vm.lock open."""
    wanted = rundir.vm_lock_inode()
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    return [pid for pid in pids if _is_ours(pid) and wanted in _open_files(pid)]


def _is_ours(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(_OURS)
    except OSError:
        return False


def _open_files(pid: int) -> set[tuple[int, int]]:
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            status = os.stat(f"/proc/{pid}/fd/{name}")
            found.add((status.st_dev, status.st_ino))
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ESRCH, errno.EACCES}:
            raise
    return found
