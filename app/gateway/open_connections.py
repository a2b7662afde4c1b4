"""Counts who is connected: reads from the kernel which TCP connections of this host are open, and
keeps the sandboxes awake to whose ports they go.

The edge and this process connect to a node's address and host port. An open WebSocket, a stream and
a kept connection are all seen so, without asking either of them. It needs no privilege.
"""
import asyncio
import ipaddress
import logging
import socket
import struct
from collections.abc import Iterator

from app.gateway.rows import Rows
from models.database import DatabaseFailed
from services.previews import keep_awake

log = logging.getLogger(__name__)
_INTERVAL_S = 5.0
# From linux/sock_diag.h, linux/inet_diag.h and linux/netlink.h.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _ESTABLISHED = 4, 20, 1
_REQUEST, _DUMP, _DONE, _ERROR = 0x01, 0x300, 3, 2
_HEADER = struct.Struct("=IHHII")
_ASK = struct.Struct("=BBBxI48x")
_ENDPOINTS = struct.Struct("!4xHH16s16s")    # of inet_diag_msg, in the network's order


def open_connections() -> set[tuple[str, int]]:
    """The far ends, address and port, of the IPv4 TCP connections that are open on this host."""
    question = _ASK.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << _ESTABLISHED)
    header = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, 1,
                          0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(5)
        kernel.sendto(header + question, (0, 0))
        raw = set(_far_ends(kernel))
    return {(str(ipaddress.IPv4Address(address)), port) for address, port in raw}


def _far_ends(kernel: socket.socket) -> Iterator[tuple[bytes, int]]:
    while True:
        answer, at = kernel.recv(256 * 1024), 0
        while at + _HEADER.size <= len(answer):
            length, kind, *_ = _HEADER.unpack_from(answer, at)
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError("the kernel does not tell which connections are open")
            _, port, _, address = _ENDPOINTS.unpack_from(answer, at + _HEADER.size)
            yield address[:4], port
            at += (length + 3) & ~3


async def keep_connected_awake(rows: Rows) -> None:
    """Every 5 seconds, keep awake the sandboxes to which connections are open; until cancelled."""
    while True:
        await asyncio.sleep(_INTERVAL_S)
        try:
            await rows.note(_note)
        except (OSError, DatabaseFailed) as error:
            log.warning("open connections were not noted: %s", type(error).__name__)


def _note() -> set[str]:
    found = open_connections()
    return keep_awake.connected(found) if found else set()
