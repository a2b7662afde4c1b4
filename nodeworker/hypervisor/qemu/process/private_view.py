"""What a QEMU process sees of this host: its own program files and its own processes.

The thread that starts it takes mount, process, IPC and host name namespaces of their own for
itself, which the new process inherits: about a millisecond, and no process more. Directories that
hold data are covered with an empty one, and processes of other users are invisible. Files that the
process inherits as descriptors are not affected.
"""
import ctypes
import os
import re
from pathlib import Path

from nodeworker.hypervisor.qemu.process.argv import SHOWN_AT

_NEW_MOUNTS, _NEW_HOST_NAME, _NEW_IPC, _NEW_PROCESSES = 0x20000, 0x4000000, 0x8000000, 0x20000000
_NO_SUID, _NO_DEVICES, _NO_EXEC = 2, 4, 8
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
# /etc stays: the dynamic loader's cache is in it.
_HIDDEN = ("/boot", "/home", "/media", SHOWN_AT, "/opt", "/root", "/run", "/srv", "/sys",
           "/tmp", "/var", "/dev/shm", "/dev/mqueue")
# Before this kernel the options of one mount of /proc changed all of them.
_OWN_PROC_OPTIONS = (5, 8)
_libc = ctypes.CDLL(None, use_errno=True)


def take_private_view(empty: Path, shown: Path | None = None) -> None:
    """Change what the calling thread, and every process that it starts from now on, sees; the
    thread must end soon. `empty` is an empty directory; `shown`, if given, is to be seen at
    `SHOWN_AT`. Raises OSError."""
    _check(_libc.unshare(_NEW_MOUNTS | _NEW_HOST_NAME | _NEW_IPC | _NEW_PROCESSES), "unshare")
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    covers = {path: empty for path in _HIDDEN} | ({SHOWN_AT: shown} if shown else {})
    # Opened before the first of them hides the others.
    opened = {cover: os.open(cover, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
              for cover in set(covers.values())}
    try:
        for path, cover in covers.items():
            if os.path.isdir(path) and not os.path.islink(path):
                _mount(f"/proc/self/fd/{opened[cover]}", path, None, _BIND)
    finally:
        for descriptor in opened.values():
            os.close(descriptor)
    if _kernel() >= _OWN_PROC_OPTIONS:
        _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES | _NO_EXEC, "hidepid=2")


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _mount(source: str | None, target: str, kind: str | None, flags: int,
           options: str | None = None) -> None:
    arguments = [None if each is None else each.encode() for each in (source, target, kind)]
    data = None if options is None else options.encode()
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
