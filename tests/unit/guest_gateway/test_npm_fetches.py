"""How much of the registry may be under way, against a registry that does not answer yet."""
import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiohttp.test_utils import make_mocked_request

from app.guest_gateway.npm import allowance, cache, fetch_places
from app.guest_gateway.npm.cache import RegistryCache
from app.guest_gateway.npm.fetch_places import FETCHES, OF_ONE_GUEST, OF_ONE_OWNER
from app.guest_gateway.npm.kept_files import KeptFiles
from services.errors import NotFound, RateLimited, Unavailable
from tests.fakes.npm_registry import NpmRegistry


@pytest.fixture
def registry():
    made = NpmRegistry()
    made.gate.clear()
    yield made
    made.close()


@pytest.fixture
def within(registry, tmp_path):
    """Runs a test in a loop, with a cache and `ask(source, name)`, which begins a request. What is
    before a colon in a source is its owner."""
    class Owners:
        async def find(self, source):
            if source == "nobody":
                raise Unavailable("The sandbox is not up yet.", retry_after_s=1)
            if source == "slow":
                await asyncio.sleep(0.5)
            return source.partition(":")[0]

    async def run(test):
        cache = RegistryCache(registry.url, KeptFiles(tmp_path, 1 << 20), Owners())
        asked = []

        def ask(source, name):
            asked.append(asyncio.ensure_future(
                cache.serve(make_mocked_request("GET", f"/npm/{name}"), source)))
            return asked[-1]

        try:
            await test(ask)
        finally:
            registry.gate.set()
            await cache.close()
            # An error that nobody has looked at is told when its task is collected: in another
            # test, whose own work that may disturb.
            await asyncio.gather(*asked, return_exceptions=True)

    return lambda test: asyncio.run(run(test))


async def arrived(registry, count):
    deadline = time.monotonic() + 10
    while len(registry.seen) < count and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert len(registry.seen) == count


def test_who_finds_all_places_taken_is_told_to_come_again(registry, within, monkeypatch):
    monkeypatch.setattr(fetch_places, "_PATIENCE_S", 0.2)

    async def test(ask):
        begun = [ask(source, f"{source}-{number}")
                 for source in ("one", "other") for number in range(OF_ONE_GUEST)]
        await arrived(registry, FETCHES)
        same = ask("third", "one-0")
        with pytest.raises(Unavailable) as refused:
            await ask("third", "new")
        assert refused.value.retry_after_s
        assert not same.done(), "what is fetched already needs no place"
        registry.gate.set()
        await asyncio.wait([*begun, same])
        with pytest.raises(NotFound):
            await ask("third", "new")

    within(test)


def test_a_guest_waits_for_its_own_fetches_and_may_leave(registry, within, monkeypatch):
    monkeypatch.setattr(fetch_places, "_PATIENCE_S", 0.2)

    async def test(ask):
        begun = [ask("one", f"one-{number}") for number in range(OF_ONE_GUEST)]
        await arrived(registry, OF_ONE_GUEST)
        leaving, waiting = ask("one", "leaving"), ask("one", "waiting")
        await asyncio.sleep(0.4)
        for each in (leaving, begun[0]):
            each.cancel()
        await arrived(registry, OF_ONE_GUEST)
        assert not waiting.done()
        registry.gate.set()
        await asyncio.wait([*begun[1:], waiting])
        assert len(registry.seen) == OF_ONE_GUEST + 1

    within(test)


def test_a_fetch_counts_as_it_begins(registry, within, monkeypatch):
    monkeypatch.setattr(allowance, "BYTES_MOST", allowance.LEAST_BYTES)
    monkeypatch.setattr(allowance, "BYTES_PER_S", 1)

    async def test(ask):
        for number in range(2):
            ask("one", f"one-{number}")
            await arrived(registry, number + 1)
        with pytest.raises(RateLimited):
            await ask("one", "new")

    within(test)


def test_more_sandboxes_are_no_more_places(registry, within, monkeypatch):
    monkeypatch.setattr(fetch_places, "_PATIENCE_S", 0.2)

    async def test(ask):
        begun = [ask(f"one:{guest}", f"{guest}-{number}")
                 for guest in range(3) for number in range(OF_ONE_GUEST)]
        await arrived(registry, OF_ONE_OWNER)
        begun.append(ask("other", "new"))
        await arrived(registry, OF_ONE_OWNER + 1)
        await asyncio.sleep(0.4)
        assert not any(each.done() for each in begun), "an owner waits for its own fetches"
        registry.gate.set()
        await asyncio.wait(begun)
        assert len(registry.seen) == len(begun)

    within(test)


def test_what_another_has_begun_while_the_owner_was_looked_up_needs_no_place(
        registry, within, monkeypatch):
    monkeypatch.setattr(fetch_places, "_PATIENCE_S", 0.2)

    async def test(ask):
        for number in range(FETCHES - 1):
            ask(("one", "other")[number % 2], f"one-{number}")
        await arrived(registry, FETCHES - 1)
        same = [ask("slow", "same"), ask("third", "same")]
        await arrived(registry, FETCHES)
        await asyncio.sleep(1)
        assert not any(each.done() for each in same)

    within(test)


def test_guests_of_an_owner_take_turns(registry, within):
    async def test(ask):
        for number in range(OF_ONE_GUEST * 3):
            ask("one:greedy", f"greedy-{number}")
        await arrived(registry, OF_ONE_GUEST)
        ask("one:modest", "modest")
        await asyncio.sleep(0.1)
        registry.gate.set()
        await arrived(registry, OF_ONE_GUEST * 3 + 1)
        paths = [path for _, path, _ in registry.seen]
        assert paths.index("/modest") < OF_ONE_GUEST * 2.5

    within(test)


def test_nor_are_they_a_new_allowance(registry, within, monkeypatch):
    monkeypatch.setattr(allowance, "BYTES_MOST", allowance.LEAST_BYTES)
    monkeypatch.setattr(allowance, "BYTES_PER_S", 1)

    async def test(ask):
        for number in range(2):
            ask("one:first", f"one-{number}")
            await arrived(registry, number + 1)
        with pytest.raises(RateLimited):
            await ask("one:second", "new")

    within(test)


def test_what_is_kept_needs_no_owner(registry, within):
    registry.publish("kept", "1.0.0", {})
    registry.gate.set()

    async def test(ask):
        with pytest.raises(Unavailable, match="not up yet"):
            await ask("nobody", "kept")
        assert registry.seen == []
        await ask("one", "kept")
        assert (await ask("nobody", "kept")).status == 200

    within(test)


def test_while_room_is_made_the_gateway_goes_on(
        registry, within, monkeypatch, tmp_path, make_listing_slow):
    monkeypatch.setattr(cache, "_DOCUMENT_BYTES", 1)
    registry.publish("kept", "1.0.0", {})
    registry.gate.set()
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / "old").write_bytes(bytes(1 << 20))

    async def test(ask):
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        listing = make_listing_slow()
        whole = ask("one", "kept/-/kept-1.0.0.tgz")
        await loop.run_in_executor(ThreadPoolExecutor(1), listing.wait)
        with pytest.raises(NotFound, match="too large"):
            await ask("other", "kept")
        assert listing.is_on
        listing.end()
        await whole

    within(test)
