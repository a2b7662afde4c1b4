"""Hands connections over from the API process to the shell process or the guest gateway, with what
has been read of them.

The API's worker has collected the head of a request. If that begins the WebSocket of a shell, or is
for a model, the descriptor goes to the process that does this work, through a socket of the
kernel's abstract names, and the API forgets the connection: an open shell, an answer that takes
minutes, hold nothing of the API and outlive its restart. That process answers whatever there is to
answer. Any program may take an abstract name, so nothing is given to one of another account than
that process's (or the API's own, or root).
"""
import errno
import logging
import os
import pwd
import re
import socket
import struct
from functools import lru_cache

from config.processes import PROCESSES

log = logging.getLogger(__name__)

SHELL, GUEST_GATEWAY = "shell", "guest-gateway"
_SHELL = re.compile(rb"GET /v1/sandboxes/[^/? ]+/shell[? ]")
_MODELS = re.compile(rb"(?:(?:GET|HEAD) /v1/models|POST /v1/messages)[? ]")
_UPGRADE = re.compile(rb"\r\nupgrade:[ \t]*websocket[ \t]*\r\n", re.IGNORECASE)
# What may be read of a request at once: a head, a small body, and the piece that it ended in.
MESSAGE_BYTES = 200 * 1024
_QUEUE = 1024
_CREDENTIALS = struct.Struct("3i")


def wanted_by(received: bytes | bytearray) -> str | None:
    """The process that a request is for, of which a whole head was received; None if it is the
    API's own."""
    if _SHELL.match(received) and _UPGRADE.search(received):
        return SHELL
    return GUEST_GATEWAY if _MODELS.match(received) else None


def hand_over(process: str, port: int, link: socket.socket, received: bytes) -> bool:
    """Give a connection to the process whose port is `port`; False if there is none, or it has too
    many. The caller closes its own descriptor either way."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as road:
        road.setblocking(False)
        road.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE_BYTES)
        try:
            road.connect(_name(process, port))
            if not _is_ours(road, process):
                log.error("another account listens in the place of %s", process)
                return False
            socket.send_fds(road, [received], [link.fileno()])
        except OSError:
            return False
    return True


def listen(process: str, port: int) -> socket.socket:
    """Where connections are handed to: non-blocking; raises OSError if another process listens."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(_name(process, port))
    listener.listen(_QUEUE)
    listener.setblocking(False)
    return listener


def take_over(road: socket.socket) -> tuple[socket.socket, bytes] | None:
    """The connection that came over an accepted `road`, and what was read of it; None if there is
    none (yet: then BlockingIOError is raised)."""
    try:
        received, descriptors, _, _ = socket.recv_fds(road, MESSAGE_BYTES, 1)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise
        return None
    if not descriptors:
        return None
    try:
        return socket.socket(fileno=descriptors[0]), received
    except OSError:  # it is no socket
        os.close(descriptors[0])
        return None


def _is_ours(road: socket.socket, process: str) -> bool:
    _, user_id, _ = _CREDENTIALS.unpack(
        road.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user_id in {0, os.geteuid(), _user_id(process)}


@lru_cache
def _user_id(process: str) -> int | None:
    try:
        return pwd.getpwnam(PROCESSES[process].account).pw_uid
    except KeyError:
        return None


def _name(process: str, port: int) -> str:
    return f"\0svc-{process}-{port}"
