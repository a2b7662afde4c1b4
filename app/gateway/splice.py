"""Passes the bytes of one request and its answer on between the edge and a guest.

The edge would keep the connection for its next request, which may be for another tenant's host. So
the answer's first bytes say HTTP/1.0 instead of the guest's version: then the edge closes it.
Nothing else is changed, so that WebSockets, streams and uploads need no code of their own.
"""
import asyncio
from collections.abc import Callable
from contextlib import suppress

from app.gateway.reach_port import Link

PIECE_BYTES = 32 * 1024
_PROTOCOL, _KEEPS_NOTHING = b"HTTP/", b"HTTP/1.0"
_BEGINNING, _SWITCHES = len(b"HTTP/1.1 101"), b" 101"
_LINGER_S = 2.0


async def splice(begun: bytes, edge: Link, guest: Link,
                 switched: Callable[[], object] = lambda: None) -> None:
    """Send what the edge has sent so far, then pass on both ways until the guest ends or the edge
    goes away. The guest's connection is closed then; the edge's is for `end` to end. `switched`
    hears of an answer that makes the connection a WebSocket."""
    sending = asyncio.create_task(_send(begun, edge.reader, guest.writer))
    try:
        first = await _read_first(guest.reader)
        if first.startswith(_PROTOCOL):
            # nginx takes many versions for one that keeps: 1.2, 1.01, 2.0
            _, space, status = first.partition(b" ")
            if not space:
                return
            first = _KEEPS_NOTHING + space + status
        edge.writer.write(first)
        if first.endswith(_SWITCHES):
            switched()
        await _pass_on(guest.reader, edge.writer)
    except OSError:
        pass
    finally:
        sending.cancel()
        # Not closed: it would stay open for as long as a guest leaves the rest unread.
        guest.writer.transport.abort()
        await asyncio.wait((sending,))  # only one may read at a time, and `end` does


async def end(edge: Link) -> None:
    """Tell the edge that the answer is over, and drop what it still sends until it closes, for
    2 s at most: closed at once, the connection would be reset, and the answer lost."""
    with suppress(OSError, asyncio.TimeoutError):
        edge.writer.write_eof()
        await asyncio.wait_for(_drop(edge.reader), _LINGER_S)


async def _drop(source: asyncio.StreamReader) -> None:
    while await source.read(PIECE_BYTES):
        pass


async def _read_first(reader: asyncio.StreamReader) -> bytes:
    """The first bytes, enough of them to see the version and the status."""
    try:
        return await reader.readexactly(_BEGINNING)
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _send(begun: bytes, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """A guest may answer before it has read everything, and close: what it said counts then."""
    try:
        target.write(begun)
        await target.drain()
        await _pass_on(source, target)
    except OSError:
        return
    target.close()  # the edge has gone


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    await target.drain()
    while piece := await source.read(PIECE_BYTES):
        target.write(piece)
        await target.drain()
