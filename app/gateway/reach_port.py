"""Opens a connection to a port of a sandbox, whatever state that is in.

1. A guest that runs is dialled. 2. If it does not run, or refuses, what is under way with the
sandbox is waited for, and what is missing begun: a row that says `running` may be older than the
refusal. 3. If that changed the sandbox it is looked up and dialled again; if not, nobody listens on
the port.
"""
import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.gateway.pages import CLOSED, NO_ROOM, NOT_READY, STOPPED, UNKNOWN, Page
from app.gateway.rows import Rows
from app.gateway.wakes import Wakes
from services.errors import ServiceError
from services.previews.lookup import Target
from services.previews.wake import Reach

BUFFER_BYTES = 32 * 1024
_DIAL_S, _AGAIN_S = 3.0, 0.5
# A guest that sleeps or dies leaves its connections without a word; they are given up after 25 s.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 2}


class Refused(Exception):
    """Nothing answers there; `page` says why."""

    def __init__(self, page: Page) -> None:
        super().__init__(page.title)
        self.page = page


@dataclass(frozen=True)
class Link:
    """An open connection to a guest."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Reacher:
    """Opens connections to guests; each may take `wait_s` seconds."""

    def __init__(self, rows: Rows, wait_s: float) -> None:
        self._rows = rows
        self._wakes = Wakes(rows, wait_s)
        self._wait_s = wait_s

    async def get_target(self, label: str) -> Target:
        """What a host leads to; raises Refused for one that is unknown or whose sandbox is
        stopped."""
        target = await self._rows.find(label)
        if target is None or target.is_stopped:
            raise Refused(UNKNOWN if target is None else STOPPED)
        return target

    async def connect(self, target: Target, look_again: Callable[[], Awaitable[Target]]) -> Link:
        """A connection to `target`, or to what `look_again` gives once something was done about it;
        raises Refused, and what that raises."""
        end = asyncio.get_running_loop().time() + self._wait_s
        while True:
            refused = False
            if target.is_up:
                self._rows.note_use(target)
                try:
                    return await _dial(target)
                except ConnectionRefusedError:
                    refused = True
                except (OSError, asyncio.TimeoutError):
                    pass
            await self._settle(target, end)
            before, target = target, await look_again()
            if before.is_settled and before.op_seq == target.op_seq:
                if refused:
                    raise Refused(CLOSED)
                # A guest decides how soon dialling it fails, and fails again.
                await asyncio.sleep(_AGAIN_S)

    async def _settle(self, target: Target, end: float) -> None:
        left_s = end - asyncio.get_running_loop().time()
        try:
            reach = await asyncio.wait_for(self._wakes.wait_for(target), max(left_s, 0))
        except asyncio.TimeoutError:
            reach = Reach.COMING
        except ServiceError:
            raise Refused(NO_ROOM) from None
        if reach is Reach.GONE:
            raise Refused(STOPPED)
        if reach is Reach.COMING or left_s <= 0:
            raise Refused(NOT_READY)


async def _dial(target: Target) -> Link:
    reader, writer = await asyncio.wait_for(
        asyncio.open_connection(target.address, target.host_port, limit=BUFFER_BYTES), _DIAL_S)
    endpoint: socket.socket = writer.get_extra_info("socket")
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        endpoint.setsockopt(socket.IPPROTO_TCP, option, value)
    writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
    return Link(reader, writer)
