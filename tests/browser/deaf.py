"""Run a program that hears nothing of this host's network interfaces: `python deaf.py PROGRAM ...`.

Chromium cuts every connection it has when an interface comes or goes, and sandboxes bring and take
theirs all the time. It hears of them over a netlink socket, and goes on without one that it is
refused: a filter of seccomp refuses it to this process and its children.
"""
import ctypes
import errno
import os
import socket
import struct
import sys

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EAFNOSUPPORT
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _FIRST_ARGUMENT_AT = 0, 16
_SOCKET_CALL = {"x86_64": 41, "aarch64": 198}


def refuse_netlink() -> None:
    """From now on `socket(AF_NETLINK, ...)` fails here; see seccomp(2)."""
    call = _SOCKET_CALL[os.uname().machine]
    steps = [(_LOAD, 0, 0, _NUMBER_AT), (_IF_EQUAL, 0, 3, call),
             (_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_IF_EQUAL, 0, 1, socket.AF_NETLINK),
             (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    header = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, header, 0, 0)):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "the filter was not taken")


if __name__ == "__main__":
    refuse_netlink()
    os.execv(sys.argv[1], sys.argv[1:])
