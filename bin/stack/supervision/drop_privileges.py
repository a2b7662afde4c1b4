"""Gives up, in a process that root started, all that it is not to have: its account, capabilities,
and the ability to gain any. By system calls, because the process goes on with the same program
(`setpriv` would start another one).

Numbers are those of linux/capability.h, linux/prctl.h and linux/mount.h.
"""
import ctypes
import grp
import os
import pwd
from collections.abc import Iterable

_CAPABILITIES = (
    "chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid",
    "setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw",
    "ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct",
    "sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod",
)
_SETS_VERSION = 0x20080522
_PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 4, 8, 23, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 38, 47, 2
_CLONE_NEWNS, _MS_REC, _MS_SLAVE = 0x20000, 0x4000, 0x80000

_libc = ctypes.CDLL(None, use_errno=True)


def own_mounts() -> None:
    """A mount namespace of its own, which hears of the host's later mounts and unmounts, so that it
    keeps no network namespace alive; raises OSError."""
    _call("unshare", _CLONE_NEWNS)
    _call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)


def become(account: str, capabilities: Iterable[str]) -> None:
    """Become an account that keeps `capabilities` and can gain no other; raises OSError, and
    KeyError for an account that does not exist."""
    kept = {_CAPABILITIES.index(name) for name in capabilities}
    user, group = pwd.getpwnam(account), grp.getgrnam(account)
    number = 0
    while (held := _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if held and number not in kept:
            _call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
        number += 1
    if user.pw_uid:
        os.setgroups([])
        _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setresgid(group.gr_gid, group.gr_gid, group.gr_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    # What an account without root keeps has to be ambient to outlive the start of a program.
    ambient = kept if user.pw_uid else set()
    _set(kept, inheritable=ambient)
    for number in ambient:
        _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # As after the start of a program: it may read its own entries of /proc.
    _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)


def _set(kept: set[int], inheritable: set[int]) -> None:
    """Keep these, effective and permitted, of what is permitted now: the root of a container has
    not all of them."""
    header, words = (ctypes.c_uint32 * 2)(_SETS_VERSION, 0), (ctypes.c_uint32 * 6)()
    _call("capget", header, words)
    permitted = words[1] | words[4] << 32
    masks = [permitted & sum(1 << number for number in numbers)
             for numbers in (kept, kept, inheritable)]
    words = (ctypes.c_uint32 * 6)(*(mask >> shift & 0xFFFFFFFF for shift in (0, 32)
                                    for mask in masks))
    _call("capset", header, words)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
