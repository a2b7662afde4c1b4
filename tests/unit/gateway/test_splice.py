"""What the gateway does to the bytes between the edge and a guest, on real sockets."""
import asyncio
import contextlib
import socket
import struct

import pytest

from app.gateway import splice as splicing
from app.gateway.reach_port import BUFFER_BYTES, Link
from app.gateway.splice import end, splice

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


@contextlib.asynccontextmanager
async def tcp_pair():
    """As `pair`, over TCP, with buffers as the gateway has them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    theirs.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours, limit=BUFFER_BYTES)
    writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
    with theirs:
        yield Link(reader, writer), theirs
        writer.transport.abort()


async def receive(end):
    """All that comes until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := await asyncio.get_running_loop().sock_recv(end, 65536):
            received += piece
    return received


async def ended(edge, guest, switched=lambda: None):
    """As the gateway serves a request."""
    await splice(HEAD, edge, guest, switched)
    await end(edge)


def spliced(*pieces):
    """What the edge gets of a guest that answers with these pieces and closes, what the guest has
    got, and how often a switch to a WebSocket was told."""
    async def run():
        switches = []
        async with pair() as (edge, browser), pair() as (guest, server):
            passing = asyncio.create_task(ended(edge, guest, lambda: switches.append(True)))
            loop = asyncio.get_running_loop()
            got = await loop.sock_recv(server, 65536)
            for piece in pieces:
                await loop.sock_sendall(server, piece)
                await asyncio.sleep(0.01)
            server.shutdown(socket.SHUT_WR)
            answer = await receive(browser)
            browser.close()
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
            passing = asyncio.create_task(ended(edge, guest))
            browser.close()
            assert await receive(server) == HEAD, "and its end"
            server.shutdown(socket.SHUT_WR)
            await passing
    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_body_passes_on_after_the_head_and_beside_the_answer():
    async def run():
        loop = asyncio.get_running_loop()
        async with pair() as (edge, browser), pair() as (guest, server):
            passing = asyncio.create_task(ended(edge, guest))
            assert await loop.sock_recv(server, 65536) == HEAD
            await loop.sock_sendall(server, b"HTTP/1.1 200 OK\r\n\r\nfirst")
            await loop.sock_sendall(browser, b"more")
            assert await loop.sock_recv(server, 65536) == b"more"
            await loop.sock_sendall(server, b" second")
            server.shutdown(socket.SHUT_WR)
            assert (await receive(browser)).endswith(b"first second")
            browser.close()
            await passing
    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("drains", [True, False], ids=["drained", "left unread"])
def test_who_still_sends_gets_the_whole_answer_and_no_reset(monkeypatch, drains):
    """And the guest's connection is closed, whatever it does with the rest."""
    monkeypatch.setattr(splicing, "_LINGER_S", 60.0)
    said = b"HTTP/1.0 413 Payload Too Large\r\n\r\n" + b"much " * 100_000

    async def run():
        loop = asyncio.get_running_loop()
        async with pair() as (edge, browser), pair() as (guest, server):
            passing = asyncio.create_task(ended(edge, guest))
            assert await loop.sock_recv(server, len(HEAD)) == HEAD
            uploading = asyncio.create_task(loop.sock_sendall(browser, bytes(20_000_000)))
            await loop.sock_sendall(server, said)
            server.shutdown(socket.SHUT_WR)
            draining = asyncio.create_task(receive(server)) if drains else asyncio.sleep(0)
            assert await receive(browser) == said
            await uploading
            browser.close()
            await asyncio.gather(passing, draining, guest.writer.wait_closed())
    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("size", [60_000, 10_000_000], ids=["taken", "not taken"])
def test_a_guest_that_reads_nothing_is_let_go_when_its_client_has_left(monkeypatch, size, reset):
    monkeypatch.setattr(splicing, "TAKES_NOTHING_S", 0.5)

    async def run():
        loop = asyncio.get_running_loop()
        async with tcp_pair() as (edge, browser), tcp_pair() as (guest, _):
            passing = asyncio.create_task(ended(edge, guest))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(loop.sock_sendall(browser, bytes(size)), 0.2)
            if reset:
                browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            browser.close()
            await passing
    asyncio.run(asyncio.wait_for(run(), 20))


def test_who_sends_nothing_more_and_does_not_close_is_let_go(monkeypatch):
    monkeypatch.setattr(splicing, "_LINGER_S", 0.05)

    async def run():
        async with pair() as (edge, browser):
            await end(edge)
            assert await receive(browser) == b""
    asyncio.run(asyncio.wait_for(run(), 20))
