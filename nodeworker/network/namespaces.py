"""Linux network namespaces and taps through system calls: make, enter in a thread of its own,
delete.

`in_namespace` runs a function in a short-lived thread that has joined the namespace; sockets,
processes and taps the function makes belong there. The thread ends with the call, so no other work
can ever run in a foreign namespace. Why this is not pyroute2's `netns`:
docs/decisions/0022-namespaces-by-system-calls.md.
"""
import ctypes
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

NETNS_DIR = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_CLONE_NEWNS = 0x00020000
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_MNT_DETACH = 2
_TUNSETIFF = 0x400454CA
_TUNSETPERSIST = 0x400454CB
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_libc = ctypes.CDLL(None, use_errno=True)
_Result = TypeVar("_Result")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _in_thread(work: Callable[[], _Result]) -> _Result:
    outcome: list[_Result] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=body, name="netns")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def in_namespace(name: str, work: Callable[[], _Result]) -> _Result:
    """Run `work` inside namespace `name`; raises OSError if there is no such namespace."""
    descriptor = os.open(NETNS_DIR / name, os.O_RDONLY | os.O_CLOEXEC)

    def joined() -> _Result:
        _check(_libc.setns(descriptor, _CLONE_NEWNET), f"setns {name}")
        return work()

    try:
        return _in_thread(joined)
    finally:
        os.close(descriptor)


def create_namespace(name: str) -> None:
    """Make namespace `name` visible under /run/netns, as `ip netns` does; raises FileExistsError if
    it is there."""
    NETNS_DIR.mkdir(parents=True, exist_ok=True)
    path = NETNS_DIR / name
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))

    def unshared() -> None:
        _check(_libc.unshare(_CLONE_NEWNET), "unshare")
        source = f"/proc/self/task/{threading.get_native_id()}/ns/net".encode()
        _check(_libc.mount(source, str(path).encode(), None, _MS_BIND, None), f"mount {path}")

    try:
        _in_thread(unshared)
    except BaseException:
        path.unlink()
        raise


def namespace_exists(name: str) -> bool:
    """True if /run/netns/<name> is really a namespace and not the empty file a crash or a reboot
    leaves."""
    try:
        return os.stat(NETNS_DIR / name).st_dev != os.stat(NETNS_DIR).st_dev
    except FileNotFoundError:
        return False


def delete_namespace(name: str) -> None:
    """Drop the name; the kernel frees the namespace and its interfaces when the last process in it
    is gone."""
    path = NETNS_DIR / name
    while namespace_exists(name):
        # EINVAL: another process was quicker
        if not _unmounted(path) and ctypes.get_errno() != errno.EINVAL:
            _check(-1, f"umount {path}")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _in_thread(lambda: _unlink_covered(path))


def _unmounted(path: Path) -> bool:
    return bool(_libc.umount2(str(path).encode(), _MNT_DETACH) == 0)


def _unlink_covered(path: Path) -> None:
    """Unlink a name whose mount is hidden: `ip netns add` of any program mounts the directory over
    itself, once.

    A mount namespace of this thread's own is a copy in which the cover can be taken off, without
    touching what other programs have mounted there. Unlinking the name in it ends the hidden mount
    in every mount namespace.
    """
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount / private")
    while True:
        while _unmounted(path):
            pass
        try:
            return path.unlink()
        except OSError:
            if not _unmounted(path.parent):
                raise


def list_namespaces(prefix: str) -> list[str]:
    """Names of all namespaces (or leftover files) that are `<prefix>-<number>`."""
    if not NETNS_DIR.is_dir():
        return []
    return [name for name in os.listdir(NETNS_DIR)
            if name.startswith(f"{prefix}-") and name[len(prefix) + 1:].isdigit()]


def open_tap(interface: str, *, persist: bool = False) -> int:
    """Attach to (or make) tap `interface` of the current namespace; returns a descriptor that
    carries its frames."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        request = struct.pack("16sH22x", interface.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
        if persist:
            fcntl.ioctl(descriptor, _TUNSETPERSIST, 1)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
