"""Names that no app has beside the routes of those that are served."""
import asyncio
import contextlib
import threading

import pytest

from app.gateway.apps import known as knowing
from app.gateway.apps.known import Known
from app.gateway.pages import CROWD
from app.gateway.reach_port import Refused
from services.deploys.edges.routes import Kind, Route, Routes

ROUTE = Route("owner", False, "sandbox", "running", None, 1, "127.0.0.1", 31000)
STRANGERS = [f"stranger-{number}" for number in range(200)]


class Rows:
    """What the database says: `served` names lead somewhere, and of the others it says nothing
    before `answers` is set. `asked` are those that it was asked for."""

    def __init__(self):
        self.served = {"shop": ROUTE, "shut": ROUTE}
        self.answers = threading.Event()
        self.asked = []

    def take(self, gateway_id, valid_s):
        return Routes(dict(self.served), {})

    def find_kind(self, name):
        self.asked.append(name)
        if name in STRANGERS:
            self.answers.wait(60)
            return None
        return Kind.SERVED


@pytest.fixture
def rows(monkeypatch):
    made = Rows()
    monkeypatch.setattr(knowing.routes, "take", made.take)
    monkeypatch.setattr(knowing.routes, "find_kind", made.find_kind)
    yield made
    made.answers.set()


@contextlib.asynccontextmanager
async def reading():
    """The routes of a gateway that reads them."""
    known = Known("here")
    chore = asyncio.create_task(known.keep_reading())
    await known.refresh()
    yield known
    chore.cancel()


def run(rows, test):
    """The test, in the presence of strangers of whom nothing is known yet."""
    async def besieged():
        async with reading() as known:
            waiting = asyncio.gather(*map(known.find_kind, STRANGERS), return_exceptions=True)
            await asyncio.sleep(0)
            try:
                await test(known)
            finally:
                rows.answers.set()
            assert await waiting == [None] * len(STRANGERS)
    asyncio.run(asyncio.wait_for(besieged(), 50))


def test_a_route_that_is_taken_away_waits_for_no_stranger(rows):
    async def test(known):
        del rows.served["shut"]
        known.valid_until = 0.0
        await asyncio.wait_for(known.refresh(), 20)
        assert known.is_valid
        assert known.find("shop") == ROUTE and known.find("shut") is None
    run(rows, test)


def test_one_stranger_more_is_refused_at_once(rows):
    async def test(known):
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(known.find_kind("one-more"), 20)
        assert refused.value.page is CROWD
    run(rows, test)
    assert sorted(rows.asked) == sorted(STRANGERS)


def test_who_asks_for_the_same_name_waits_for_the_same_question(rows):
    async def test(known):
        again = [asyncio.create_task(known.find_kind(STRANGERS[-1])) for _ in range(300)]
        await asyncio.sleep(0)
        rows.answers.set()
        assert await asyncio.gather(*again) == [None] * 300
    run(rows, test)
    assert sorted(rows.asked) == sorted(STRANGERS)
