"""The connections of the guest gateway: how many there may be, and what a broken request is told.

Guests are hostile. aiohttp closes a connection whose next head is not complete in `HEAD_S`, idle
ones with it, and refuses heads that are too large. Bodies are bounded where they are read.
"""
import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from app.guest_gateway.answers import refusal
from app.guest_gateway.connection_shares import ConnectionShares

log = logging.getLogger(__name__)
HEAD_S = 20.0
CONNECTIONS, OF_ONE_GUEST = 4000, 128
# The kernel ends a connection whose other side takes nothing, or does not answer, for so long.
_PATIENCE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_USER_TIMEOUT: 60_000}
_LINE_BYTES, _FIELD_BYTES, _FIELDS = 8 * 1024, 16 * 1024, 100
LOOPBACK = "127.0.0.1"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connections(web.Server):
    """aiohttp's server with limits. What `handle` does ends as soon as its client goes away."""

    def __init__(self, handle: Handler) -> None:
        self._options: dict[str, Any] = {
            "keepalive_timeout": HEAD_S, "access_log": None, "logger": log,
            "auto_decompress": False, "lingering_time": 2.0, "max_line_size": _LINE_BYTES,
            "max_field_size": _FIELD_BYTES, "max_headers": _FIELDS,
        }
        super().__init__(handle, handler_cancellation=True)
        self._shares: ConnectionShares[web.RequestHandler] = ConnectionShares(CONNECTIONS,
                                                                              OF_ONE_GUEST)

    def __call__(self) -> "Connection":
        return Connection(self, loop=self._loop, **self._options)

    def for_one_request(self) -> "Connection":
        """A connection that is of this host's, and closed after its first answer."""
        handler = self()
        handler.is_handed_over = True
        return handler

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection of a guest; one too many is ended."""
        super().connection_made(handler, transport)
        if is_of_host(handler):
            return
        one_too_many = self._shares.take(source_of(transport), handler)
        if one_too_many is not None and one_too_many.transport is not None:
            one_too_many.transport.abort()

    def connection_lost(self, handler: web.RequestHandler,
                        exc: BaseException | None = None) -> None:
        """Forget a connection."""
        super().connection_lost(handler, exc)
        self._shares.give_back(handler)


class Connection(web.RequestHandler):
    """One connection; its errors have our shape. `is_handed_over`: from the API process."""

    __slots__ = ("is_handed_over",)

    def __init__(self, manager: Connections, **options: Any) -> None:
        super().__init__(manager, **options)
        self.is_handed_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have a guest that takes nothing for a minute, or has gone, found out."""
        super().connection_made(transport)
        link = transport.get_extra_info("socket")
        if link is not None and link.family == socket.AF_INET:
            for option, value in _PATIENCE.items():
                link.setsockopt(socket.IPPROTO_TCP, option, value)

    def handle_error(self, request: web.BaseRequest, status: int = 500,
                     exc: BaseException | None = None,
                     message: str | None = None) -> web.StreamResponse:
        """The answer to what cannot be read as HTTP. What a client sent is not repeated."""
        if status >= 500:
            log.error("a request failed", exc_info=exc)
        text = "The request cannot be read." if status < 500 else "internal error"
        answer = refusal(status, text, plain=is_of_host(self))
        answer.force_close()
        return answer


def is_of_host(handler: Any) -> bool:
    """Whether a connection comes from this host: the edge, the API, a look at our health."""
    return bool(handler.is_handed_over) or source_of(handler.transport) == LOOPBACK


def is_one_request(request: web.BaseRequest) -> bool:
    """Whether the connection is to be closed after its answer."""
    return bool(getattr(request.protocol, "is_handed_over", False))


def source_of(transport: Any) -> str:
    """The address that a connection comes from; empty if it has gone."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if peer else ""
