"""What the gateway does to the bytes between the edge and a guest, on real sockets."""
import asyncio
import contextlib
import socket

import pytest

from app.gateway.reach_port import Link
from app.gateway.splice import splice

HEAD = b"GET / HTTP/1.1\r\nHost: guest\r\n\r\n"


@contextlib.asynccontextmanager
async def pair():
    """A link of the gateway, and the socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours)
    with theirs:
        yield Link(reader, writer), theirs
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def receive(end):
    """All that comes until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := await asyncio.get_running_loop().sock_recv(end, 65536):
            received += piece
    return received


def spliced(*pieces, begun=HEAD):
    """What the edge gets of a guest that answers with these pieces and closes, what the guest has
    got, and how often a switch to a WebSocket was told."""
    async def run():
        switches = []
        async with pair() as (edge, browser), pair() as (guest, server):
            passing = asyncio.create_task(
                splice(begun, edge, guest, lambda: switches.append(True)))
            loop = asyncio.get_running_loop()
            got = await loop.sock_recv(server, 65536)
            for piece in pieces:
                await loop.sock_sendall(server, piece)
                await asyncio.sleep(0.01)
            server.shutdown(socket.SHUT_WR)
            answer = await receive(browser)
            await passing
        return answer, got, len(switches)
    return asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("pieces", [
    [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"],
    [b"HT", b"TP/1", b".1 200 OK\r\nContent-Length: 2\r\n\r\n", b"ok"],
], ids=["at once", "in pieces"])
def test_an_answer_keeps_no_connection_and_is_otherwise_as_it_was(pieces):
    answer, got, switches = spliced(*pieces)
    assert answer == b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert got == HEAD and not switches


def test_only_the_first_bytes_are_changed():
    body = b"HTTP/1.1 HTTP/1.1 \r\n\r\n" * 5000
    answer, _, _ = spliced(b"HTTP/1.1 200 OK\r\n\r\n" + body)
    assert answer == b"HTTP/1.0 200 OK\r\n\r\n" + body


def test_a_switch_to_a_websocket_is_told_and_keeps_its_status():
    answer, _, switches = spliced(b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x01x")
    assert answer.startswith(b"HTTP/1.0 101 ") and answer.endswith(b"\x81\x01x") and switches == 1


@pytest.mark.parametrize("version", [b"1.2", b"1.01", b"2.0", b"9.99"])
def test_of_other_versions_the_edge_hears_nothing(version):
    answer, _, _ = spliced(b"HTTP/%s 200 OK\r\nContent-Length: 2\r\n\r\nok" % version)
    assert answer == b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_a_version_without_an_end_is_no_answer():
    answer, _, _ = spliced(b"HTTP/1.%s1 200 OK\r\nContent-Length: 2\r\n\r\nok" % (b"0" * 50))
    assert answer == b""


@pytest.mark.parametrize("first", [b"", b"HTT", b"HTTP/1.0 200 OK\r\n\r\nx",
                                   b"SSH-2.0-server and more"])
def test_what_is_short_or_no_such_answer_passes(first):
    answer, _, _ = spliced(first)
    assert answer == first


def test_both_ends_close_when_the_edge_goes_away():
    async def run():
        async with pair() as (edge, browser), pair() as (guest, server):
            passing = asyncio.create_task(splice(HEAD, edge, guest))
            browser.close()
            assert await receive(server) == HEAD, "and its end"
            server.shutdown(socket.SHUT_WR)
            await passing
    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_body_passes_on_after_the_head_and_beside_the_answer():
    async def run():
        loop = asyncio.get_running_loop()
        async with pair() as (edge, browser), pair() as (guest, server):
            passing = asyncio.create_task(splice(HEAD, edge, guest))
            assert await loop.sock_recv(server, 65536) == HEAD
            await loop.sock_sendall(server, b"HTTP/1.1 200 OK\r\n\r\nfirst")
            await loop.sock_sendall(browser, b"more")
            assert await loop.sock_recv(server, 65536) == b"more"
            await loop.sock_sendall(server, b" second")
            server.shutdown(socket.SHUT_WR)
            assert (await receive(browser)).endswith(b"first second")
            await passing
    asyncio.run(asyncio.wait_for(run(), 20))
