"""What it costs the gateway to wait for a sandbox at which many ports are asked for."""
import asyncio
import contextlib
import dataclasses

import pytest

from app.gateway import wakes
from app.gateway.wakes import Wakes
from services.previews.lookup import Target
from services.previews.wake import Reach

TARGET = Target("sbx_1", "usr_1", "hibernated", None, 1, "127.0.0.1", 20000, 3000)
PORTS = list(range(3000, 3064))


@pytest.fixture(autouse=True)
def nobody_tells_of_changes(monkeypatch):
    monkeypatch.setattr(wakes.row_changes, "told_of_changes", lambda *_: contextlib.nullcontext())


class Rows:
    """Says that nothing is up before the test says so; and which ports it was asked for at once."""

    def __init__(self, *, is_up=False, error=None):
        self.asked, self.is_up, self.error = [], is_up, error

    async def first_look(self):
        """Returns once it has been asked."""
        while not self.asked:
            await asyncio.sleep(0.01)

    async def bring_up(self, sandbox_id, guest_ports):
        """A statement takes its time."""
        self.asked.append(sorted(guest_ports))
        await asyncio.sleep(0.01)
        if self.error:
            raise self.error
        return dict.fromkeys(guest_ports, Reach.UP if self.is_up else Reach.COMING)


def wait_for(waiting, *ports, **changes):
    """What each of them hears."""
    return asyncio.gather(*(
        waiting.wait_for(dataclasses.replace(TARGET, guest_port=port, **changes))
        for port in ports), return_exceptions=True)


def test_all_ports_of_a_sandbox_are_looked_at_together():
    rows = Rows()

    async def run():
        waiting = Wakes(rows, 60.0)
        crowd = asyncio.ensure_future(wait_for(waiting, *PORTS, *PORTS))
        await rows.first_look()
        await asyncio.sleep(0.1)
        rows.is_up = True
        assert await crowd == [Reach.UP] * 128
        assert await wait_for(waiting, 3000) == [Reach.UP], "and anew afterwards"
    asyncio.run(run())
    assert rows.asked[0] == PORTS and len(rows.asked) < 10


def test_who_comes_later_is_looked_at_at_once(monkeypatch):
    monkeypatch.setattr(wakes, "_SURE_S", 30.0)
    rows = Rows()

    async def run():
        waiting = Wakes(rows, 60.0)
        first = asyncio.ensure_future(wait_for(waiting, 3000))
        await rows.first_look()
        await asyncio.sleep(0.1)
        rows.is_up = True
        assert await asyncio.wait_for(wait_for(waiting, 3001), 20) == [Reach.UP]
        assert await first == [Reach.UP]
    asyncio.run(run())
    assert rows.asked == [[3000], [3000, 3001]]


def test_everybody_hears_of_an_error_and_of_the_end_of_his_time():
    error = KeyError("away")

    async def run():
        assert await wait_for(Wakes(Rows(error=error), 5.0), 3000, 3001) == [error] * 2
        late = Wakes(Rows(), 0.1)
        assert await wait_for(late, 3000, 3001) == [Reach.COMING] * 2
    asyncio.run(run())


def test_everybody_hears_that_nobody_can_listen_for_changes(monkeypatch):
    error = OSError("too many open files")

    @contextlib.contextmanager
    def no_listener(*_):
        raise error
        yield

    monkeypatch.setattr(wakes.row_changes, "told_of_changes", no_listener)

    async def run():
        assert await asyncio.wait_for(wait_for(Wakes(Rows(), 60.0), 3000, 3001), 20) == [error] * 2
    asyncio.run(run())


def test_who_leaves_ends_no_look():
    rows = Rows()

    async def run():
        waiting = Wakes(rows, 60.0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting.wait_for(TARGET), 0.05)
        rows.is_up = True
        assert await waiting.wait_for(TARGET) is Reach.UP
    asyncio.run(run())
    assert rows.asked == [[3000]] * len(rows.asked) and len(rows.asked) < 10
