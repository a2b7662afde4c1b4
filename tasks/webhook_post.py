"""One HTTP POST to a receiver that may be slow, broken or hostile: it costs one socket, a few
kilobytes and its time-out.

The time-out is for all that decides: name, connection, TLS, request and the answer's status line.
What comes after that line has a moment more, and changes nothing.
Redirects are not followed, no proxy is used, a connection serves one attempt. Receivers are the
operator's own choice, so private addresses are allowed.
"""
import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass

import h11

from services.events.receivers import Receiver

# An answer's status and headers must fit into this; of its body we take this much, for a clean end,
# and hang up on the rest.
_HEAD_BYTES = 16 * 1024
_BODY_BYTES = 4 * 1024
_BODY_S = 0.5


@dataclass(frozen=True)
class Answer:
    """`delivered` is true for any 2xx; otherwise `reason` says why not, in words for an
    operator."""

    delivered: bool
    duration_ms: float
    http_status: int | None = None
    reason: str | None = None


async def post(receiver: Receiver, headers: Mapping[str, str], body: bytes, *, timeout_s: float,
               tls: ssl.SSLContext) -> Answer:
    """Post `body` once; never raises for what a receiver or the network does."""
    began = time.monotonic()
    status, reason = None, None
    try:
        status = await _exchange(receiver, headers, body, tls, timeout_s)
    except asyncio.TimeoutError:
        reason = f"no answer within {timeout_s:g} s"
    except h11.RemoteProtocolError as error:
        reason = f"the answer is not HTTP: {error}"
    except OSError as error:
        reason = _in_words(error)
    delivered = status is not None and 200 <= status < 300
    if status is not None and not delivered:
        reason = f"HTTP {status}" + (", a redirect, which is not followed"
                                     if 300 <= status < 400 else "")
    return Answer(delivered, (time.monotonic() - began) * 1000, status, reason)


def _in_words(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, ssl.SSLError):
        return (
            f"TLS: {getattr(error, 'verify_message', '') or error.reason or type(error).__name__}"
        )
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionError):
        return "the connection was cut before an answer"
    return f"no connection: {error.strerror or type(error).__name__}"


async def _exchange(receiver: Receiver, headers: Mapping[str, str], body: bytes,
                    tls: ssl.SSLContext, timeout_s: float) -> int:
    """The final status of the answer; the connection is gone afterwards, whatever happens."""
    with contextlib.ExitStack() as connection:
        exchange = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        asked = _ask(receiver, headers, body, tls, exchange, connection)
        status, reader = await asyncio.wait_for(asked, timeout_s)
        with contextlib.suppress(asyncio.TimeoutError, h11.RemoteProtocolError, OSError):
            await asyncio.wait_for(_read_some_body(exchange, reader), _BODY_S)
        return status


async def _ask(receiver: Receiver, headers: Mapping[str, str], body: bytes, tls: ssl.SSLContext,
               exchange: h11.Connection,
               connection: contextlib.ExitStack) -> tuple[int, asyncio.StreamReader]:
    """Send the request; returns the status, and where the rest of the answer comes from."""
    reader, writer = await asyncio.open_connection(
        receiver.host, receiver.port, ssl=tls if receiver.tls else None, limit=_HEAD_BYTES
    )
    connection.callback(_hang_up, writer)
    request = h11.Request(
        method="POST",
        target=receiver.target,
        headers=[("Host", receiver.authority), ("Content-Length", str(len(body))),
                 ("Connection", "close")] + list(headers.items()),
    )
    parts = (
        exchange.send(request), exchange.send(h11.Data(body)),
        exchange.send(h11.EndOfMessage()),
    )
    writer.write(b"".join(part for part in parts if part))
    # Not awaited: a receiver may answer before it has read everything, and the answer is what
    # counts.
    return await _read_status(exchange, reader), reader


def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def _read_status(exchange: h11.Connection, reader: asyncio.StreamReader) -> int:
    while True:
        event = exchange.next_event()
        if isinstance(event, h11.Response):
            return event.status_code
        if event is h11.NEED_DATA:
            data = await reader.read(_HEAD_BYTES)
            if not data:
                raise ConnectionResetError("end of stream")
            exchange.receive_data(data)


async def _read_some_body(exchange: h11.Connection, reader: asyncio.StreamReader) -> None:
    taken = 0
    while taken < _BODY_BYTES:
        event = exchange.next_event()
        if isinstance(event, h11.Data):
            taken += len(event.data)
        elif event is h11.NEED_DATA:
            exchange.receive_data(await reader.read(_BODY_BYTES))
        else:
            return
