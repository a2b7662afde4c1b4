"""Who waits in the gateway's threads keeps nobody else waiting."""
import asyncio
import threading
from collections import Counter

import pytest
from aiohttp.test_utils import make_mocked_request

from app.guest_gateway.callers import Callers
from app.guest_gateway.llm.calls import Call, Calls
from app.guest_gateway.llm.endpoints import find_endpoint
from app.guest_gateway.llm.request_body import Asked
from app.guest_gateway.rows import Rows
from services.errors import Unauthenticated
from services.llm.callers import LlmCaller
from tests.rows.llm import CONFIG, PRICED, SETTINGS

MANY, SOON_S = 40, 3
# {"alg":"HS256","kid":"made-up"}.{}.
TOKEN = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im1hZGUtdXAifQ.e30.c2ln"
ENDPOINT = find_endpoint("POST", "/messages", is_anthropic=True)


class Held:
    """What waits in threads until `end`, and who came to wait there."""

    def __init__(self):
        self.came, self._may_end = Counter(), threading.Event()

    def wait(self, who):
        self.came[who] += 1
        self._may_end.wait(10)

    def end(self):
        self._may_end.set()


@pytest.fixture
def held():
    made = Held()
    yield made
    made.end()


@pytest.fixture
def within(held, monkeypatch):
    """Runs a test in a loop, with calls whose begins are held but for those of `quick`."""
    def begin(calls, config, caller, *_):
        if caller.owner_id != "quick":
            held.wait(caller.owner_id)
        return Call(config, [PRICED], None, 0, 0, 0, PRICED)

    monkeypatch.setattr(Calls, "_begin", begin)

    async def run(test):
        rows = Rows()
        calls, begun = Calls("g", rows), []

        def ask(owner_id):
            begun.append(asyncio.ensure_future(
                calls.begin(CONFIG, LlmCaller(owner_id), ENDPOINT, Asked(), set())))
            return begun[-1]

        try:
            await test(ask, rows, calls)
        finally:
            held.end()
            await asyncio.gather(*begun, return_exceptions=True)

    return lambda test: asyncio.run(run(test))


async def look_up(rows):
    await asyncio.sleep(0.1)  # those before are in the threads by now
    assert await asyncio.wait_for(rows.ask(int), SOON_S) == 0


def test_an_owner_s_begins_keep_no_other_owner_s_waiting(held, within):
    async def test(ask, rows, _):
        for _ in range(MANY):
            ask("slow")
        await asyncio.wait_for(ask("quick"), SOON_S)
        await look_up(rows)
        assert held.came == {"slow": 1}

    within(test)


def test_begins_of_many_owners_keep_no_look_up_waiting(within):
    async def test(ask, rows, _):
        for number in range(MANY):
            ask(f"slow-{number}")
        await look_up(rows)

    within(test)


def test_who_leaves_before_its_turn_has_begun_nothing(held, within):
    async def test(ask, *_):
        first, leaving, last = (ask("slow") for _ in range(3))
        await asyncio.sleep(0.1)
        for each in (first, leaving):
            each.cancel()
        await asyncio.wait([first, leaving])
        await asyncio.sleep(0.1)
        assert held.came == {"slow": 1}, "the first one's begin goes on, and has its turn"
        held.end()
        await asyncio.wait_for(last, SOON_S)
        assert held.came == {"slow": 2}

    within(test)


def test_nothing_is_kept_of_owners_that_begin_nothing(within):
    async def test(ask, _, calls):
        asked = [ask("quick") for _ in range(2)]
        await asyncio.sleep(0)
        assert list(calls._turns) == ["quick"]
        await asyncio.wait(asked)
        await asyncio.sleep(0)
        assert not calls._turns

    within(test)


def test_an_identity_host_that_hangs_keeps_no_guest_s_look_up_waiting(held):
    class Authority:
        def find(self, kid):
            held.wait(kid)

    async def test():
        rows = Rows()
        callers = Callers(SETTINGS, Authority(), rows)
        request = make_mocked_request("GET", "/v1/models", {"Authorization": f"Bearer {TOKEN}"})
        asked = [asyncio.ensure_future(callers.of_service(request)) for _ in range(MANY)]
        await look_up(rows)
        assert held.came["made-up"], "the token leads to the identity host"
        held.end()
        refused = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(each) for each in refused} == {Unauthenticated}

    asyncio.run(test())
