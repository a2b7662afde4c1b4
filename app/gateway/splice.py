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
# As nginx does for those that it sends to guests itself (config/nginx/unbuffered.conf).
TAKES_NOTHING_S = 120.0


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
    piece = begun
    try:
        while piece:
            target.write(piece)
            await _taken(target)
            piece = await _read(source)
    except OSError:
        return
    # The edge has gone. Not closed: it would stay open until the guest has read the rest.
    target.transport.abort()


async def _taken(target: asyncio.StreamWriter) -> None:
    """Wait until a guest has taken most of what it was sent; one that takes nothing for so long is
    let go. While it is waited for, nobody sees whether the edge has gone."""
    giving_up = asyncio.get_running_loop().call_later(TAKES_NOTHING_S, target.transport.abort)
    try:
        await target.drain()
    finally:
        giving_up.cancel()


async def _read(source: asyncio.StreamReader) -> bytes:
    """The next that the edge sends; nothing if it has gone, in whatever way."""
    try:
        return await source.read(PIECE_BYTES)
    except OSError:
        return b""


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    await target.drain()
    while piece := await source.read(PIECE_BYTES):
        target.write(piece)
        await target.drain()
