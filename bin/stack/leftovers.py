"""Finds and ends what a stack left on the host after its supervisor was killed, and nothing else.

A process belongs to a stack if SVC_DATA_DIR in its environment is that stack's directory, if it is
a private server, whose /mnt is a directory of the stack, or nginx, which works in one. A VM holds
files of the stack's node directory open; VMs are told apart, because they are to outlive the
processes. Nothing is ever ended for its name alone.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path

from nodeworker.hypervisor.driver import VmState
from nodeworker.hypervisor.qemu.rundir import RunDir

# Beginnings of the names of private stacks' directories, which lie in var/ beside the development
# stack's files.
PRIVATE = ("test-", "bench-")


def processes_of(data_dir: Path) -> dict[int, str]:
    """Pid -> command line of every living process that belongs to the stack in `data_dir`, this one
    excepted."""
    directories = [
        os.stat(path) for path in (data_dir / "postgres", data_dir / "redis") if path.is_dir()
    ]
    return _matching(lambda entry, command: _carries_name(entry, data_dir)
                     or _is_server(entry, directories) or _is_edge(entry, data_dir / "edge"))


def vms_of(node_dir: Path) -> dict[int, str]:
    """Pid -> command line of every VM with files under `node_dir`, by whatever path that is
    named."""
    directory = os.path.realpath(node_dir)
    return _matching(lambda entry, command: _is_vm(entry, command, directory))


def list_awake(node_dir: Path) -> list[str]:
    """Ids of the sandboxes that have a machine at work under `node_dir`: not one that is kept after
    a hibernation, and no machine that stands ready for a create."""
    found = [RunDir(path) for path in sorted((node_dir / "sandboxes").glob("*"))]
    return [each.sandbox_id for each in found
            if each.inspect() in (VmState.RUNNING, VmState.PARTIAL) and each.is_alive()]


def vms_named(net_prefix: str, end: str = "") -> dict[int, str]:
    """Pid -> command line of every VM of the stack with this prefix, wherever its files are, with
    that end of its name."""
    return _matching(lambda entry, command: _is_vm_named(command, f"{net_prefix}/", end))


def bakes_of(net_prefix: str) -> dict[int, str]:
    """Pid -> command line of every VM in which the stack with this prefix was baking a warm image;
    nobody uses them."""
    return vms_named(net_prefix, ".tmp")


def _is_vm_named(command: bytes, begin: str, end: str) -> bool:
    words = command.split(b"\0")
    if not words[0].rpartition(b"/")[2].startswith(b"qemu-system") or b"-name" not in words:
        return False
    name = words[words.index(b"-name") + 1].decode(errors="replace")
    return name.startswith(begin) and name.endswith(end)


def _matching(belongs: Callable[[Path, bytes], bool]) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (os.getpid(), os.getppid()):
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if command and belongs(entry, command):
                found[int(entry.name)] = command.replace(b"\0",
                                                         b" ").decode(errors="replace").strip()
    return found


def _carries_name(entry: Path, data_dir: Path) -> bool:
    """True for a process of the stack; not for an operator's program at a terminal, which may have
    its settings."""
    if (entry / "stat").read_text().rpartition(")")[2].split()[4] != "0":
        return False
    return f"SVC_DATA_DIR={data_dir}".encode() in (entry / "environ").read_bytes().split(b"\0")


def _is_server(entry: Path, directories: list[os.stat_result]) -> bool:
    bound = os.stat(entry / "root" / "mnt")
    return any(os.path.samestat(bound, directory) for directory in directories)


def _is_edge(entry: Path, directory: Path) -> bool:
    """nginx writes over its environment, so it is known by its working directory."""
    return (entry / "comm").read_text() == "nginx\n" and directory.is_dir() and os.path.samefile(
        entry / "cwd", directory)


def _is_vm(entry: Path, command: bytes, directory: str) -> bool:
    if not command.split(b"\0")[0].rpartition(b"/")[2].startswith((b"qemu-system", b"setpriv")):
        return False
    return any(os.readlink(link).startswith(f"{directory}/") for link in (entry / "fd").iterdir())


def end(find: Callable[[], Collection[int]], patience_s: float = 3.0) -> None:
    """End every process that `find` finds, politely for `patience_s` seconds (not at all for 0),
    then for good; also those that come meanwhile, which a supervisor restarts as it dies."""
    polite = [(signal.SIGTERM, patience_s)] if patience_s else []
    for signum, wait_s in (*polite, (signal.SIGKILL, 5.0)):
        deadline, told = time.monotonic() + wait_s, set[int]()
        while found := set(find()):
            for pid in found - told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)
            told |= found
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)


def remove_cgroups(prefix: str) -> None:
    """Remove the emptied control groups of a stack's VMs, in version 1 and version 2
    hierarchies."""
    for root in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()):
        if (root / prefix).is_dir():
            for group in [
                    *(entry for entry in (root / prefix).iterdir() if entry.is_dir()), root / prefix
            ]:
                with contextlib.suppress(OSError):
                    group.rmdir()


def alive_since(pid: int) -> str:
    """Start time of a process in clock ticks, which tells it from a later one of the same number;
    empty if none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""


def make_directory(data_dir: Path) -> None:
    """Make the directory of a private stack, on ext4 far from those beside it, and note in it that
    this process owns it."""
    # Before ext4 gives a new file its number, it looks at each one nearby that was freed in the
    # last minutes: where stacks had just been removed, a database took 0.4 s to make, else 0.05.
    with contextlib.suppress(OSError):
        subprocess.run(["chattr", "+T", str(data_dir.parent)], stderr=subprocess.DEVNULL,
                       check=False)
    data_dir.mkdir(mode=0o755, parents=True)
    write_owner(data_dir)


def write_owner(data_dir: Path) -> None:
    """Note in a private stack's directory that this process owns it."""
    (data_dir / "owner").write_text(f"{os.getpid()} {alive_since(os.getpid())}")


def owner_lives(data_dir: Path) -> bool:
    """True while the process that made this private stack runs."""
    owner = data_dir / "owner"
    pid, _, since = (owner.read_text() if owner.exists() else "0").partition(" ")
    return bool(since) and alive_since(int(pid)) == since


def abandoned(parent: Path) -> list[Path]:
    """Directories of private stacks (`test-*`, `bench-*`) under `parent` whose owner has died
    without removing them."""
    return [entry for entry in sorted(parent.glob("*-*"))
            if entry.name.startswith(PRIVATE) and not owner_lives(entry)]


def remove_entries(data_dir: Path, keep: Collection[str] = ()) -> None:
    """Remove what a stack's directory holds, and the directory once it is empty. Entries named in
    `keep` stay, and so do private stacks inside: they have their own owners. Its own owner goes
    last: without it, it would be anybody's. Its settings go before that, which say that there is
    something left."""
    entries = list(data_dir.iterdir()) if data_dir.is_dir() else []
    for entry in sorted(entries, key=lambda each: (each.name == "owner", each.name == "stack.env")):
        if entry.name not in keep and not entry.name.startswith(PRIVATE):
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(
                missing_ok=True)
    with contextlib.suppress(OSError):
        data_dir.rmdir()
