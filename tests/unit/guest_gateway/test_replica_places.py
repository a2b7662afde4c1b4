"""How long a guest may hold a place on the road to the object store, and how many."""
import asyncio
import contextlib
import hashlib

import aiohttp
import pytest
from aiohttp import web

from app.guest_gateway.replica_store import request as requests
from app.guest_gateway.replica_store.request_places import (
    OF_ONE_GUEST,
    OF_ONE_OWNER,
    REQUESTS,
    RequestPlaces,
)
from app.http import pace
from services.errors import InvalidRequest, RateLimited

SILENCE_S, SOON_S = 0.3, 20


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(requests, "_SILENCE_S", SILENCE_S)


@contextlib.asynccontextmanager
async def serving(handle):
    """The port where `handle` answers."""
    server = await asyncio.get_running_loop().create_server(web.Server(handle), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def body_that_comes(pieces, between_s):
    """What is said of a body that comes in these pieces."""
    said = []

    async def nothing():
        pass

    async def handle(request):
        digest = hashlib.sha256(b"".join(pieces)).hexdigest()
        try:
            read = [piece async for piece in requests._checked(request, digest, nothing)]
            said.append(b"".join(read))
        except InvalidRequest as error:
            said.append(error.text)
        return web.Response()

    async def run():
        async with serving(handle) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            size = sum(len(piece) for piece in pieces)
            writer.write(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(between_s)
                if said:
                    break
            for _ in range(100):
                await asyncio.sleep(0 if said else 0.05)
            writer.close()
    asyncio.run(run())
    return said[0]


def test_a_body_that_trickles_holds_its_place_no_longer_than_one_that_stands_still():
    assert "its time" in body_that_comes([b"x"] * 1000, SILENCE_S / 10)


def test_a_body_that_comes_at_its_pace_may_take_longer(monkeypatch):
    monkeypatch.setattr(pace, "SLOWEST_BYTES_PER_S", 10)
    pieces = [b"0123456789"] * 10
    assert body_that_comes(pieces, SILENCE_S / 3) == b"".join(pieces)


def test_an_answer_that_a_guest_does_not_take_is_broken_off(monkeypatch):
    monkeypatch.setattr(pace, "SLOWEST_BYTES_PER_S", 1 << 40)
    broken_off = []

    async def endless(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await answer.write(bytes(1 << 20))

    async def run():
        ended = asyncio.Event()
        async with serving(endless) as store, aiohttp.ClientSession() as session:
            async def handle(request):
                async with session.get(f"http://127.0.0.1:{store}") as answer:
                    passed = await requests._pass_on(request, answer)
                    broken_off.append(request.transport is None
                                      or request.transport.is_closing())
                ended.set()
                return passed

            async with serving(handle) as port:
                _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await asyncio.wait_for(ended.wait(), SOON_S)
                writer.close()
    asyncio.run(run())
    assert broken_off == [True]


def test_a_guest_and_an_owner_have_shares_of_the_places():
    places = RequestPlaces()

    def takes(source, owner_id):
        with contextlib.suppress(RateLimited):
            held.enter_context(places.place(source, owner_id))
            return True
        return False

    with contextlib.ExitStack() as held:
        assert [takes("one", "a") for _ in range(OF_ONE_GUEST + 1)].count(True) == OF_ONE_GUEST
        taken = [takes(f"guest{number // OF_ONE_GUEST}", "a") for number in range(REQUESTS)]
        assert taken.count(True) == OF_ONE_OWNER - OF_ONE_GUEST
        assert takes("another", "b")
    with contextlib.ExitStack() as held:
        assert [takes("one", "a") for _ in range(OF_ONE_GUEST + 1)].count(True) == OF_ONE_GUEST
