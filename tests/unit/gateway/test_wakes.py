"""What it costs the gateway to wait for a sandbox at which many ports are asked for."""
import asyncio
import contextlib
import dataclasses
import time

import pytest

from app.gateway import wakes
from app.gateway.wakes import Wakes
from services.previews.lookup import Target
from services.previews.wake import Reach

TARGET = Target("sbx_1", "usr_1", "hibernated", None, 1, "127.0.0.1", 20000, 3000)
PORTS = list(range(3000, 3064))


class Rows:
    """Says that nothing is up before the time; and which ports it was asked for at once."""

    def __init__(self, up_after_s=0.0, error=None):
        self.asked, self.error = [], error
        self.up_at = time.monotonic() + up_after_s

    async def bring_up(self, sandbox_id, guest_ports):
        """A statement takes its time."""
        self.asked.append(sorted(guest_ports))
        await asyncio.sleep(0.01)
        if self.error:
            raise self.error
        reach = Reach.UP if time.monotonic() >= self.up_at else Reach.COMING
        return dict.fromkeys(guest_ports, reach)


def wait_for(waiting, *ports, **changes):
    """What each of them hears."""
    return asyncio.gather(*(
        waiting.wait_for(dataclasses.replace(TARGET, guest_port=port, **changes))
        for port in ports), return_exceptions=True)


def test_all_ports_of_a_sandbox_are_looked_at_together():
    rows = Rows(up_after_s=0.8)

    async def run():
        waiting = Wakes(rows, 5.0)
        assert await wait_for(waiting, *PORTS, *PORTS) == [Reach.UP] * 128
        assert await wait_for(waiting, 3000) == [Reach.UP], "and anew afterwards"
    asyncio.run(run())
    assert rows.asked[0] == PORTS and len(rows.asked) < 10


def test_who_comes_later_is_looked_at_at_once(monkeypatch):
    monkeypatch.setattr(wakes, "_SURE_S", 30.0)
    rows = Rows(up_after_s=0.3)

    async def run():
        waiting = Wakes(rows, 60.0)
        first = asyncio.ensure_future(wait_for(waiting, 3000))
        await asyncio.sleep(0.4)
        assert await asyncio.wait_for(wait_for(waiting, 3001), 5) == [Reach.UP]
        assert await first == [Reach.UP]
    asyncio.run(run())
    assert rows.asked == [[3000], [3000, 3001]]


def test_everybody_hears_of_an_error_and_of_the_end_of_his_time():
    error = KeyError("away")

    async def run():
        assert await wait_for(Wakes(Rows(error=error), 5.0), 3000, 3001) == [error] * 2
        late = Wakes(Rows(up_after_s=60), 0.1)
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
        assert await asyncio.wait_for(wait_for(Wakes(Rows(), 60.0), 3000, 3001), 5) == [error] * 2
    asyncio.run(run())


def test_who_leaves_ends_no_look():
    rows = Rows(up_after_s=0.3)

    async def run():
        waiting = Wakes(rows, 5.0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting.wait_for(TARGET), 0.05)
        assert await waiting.wait_for(TARGET) is Reach.UP
    asyncio.run(run())
    assert rows.asked == [[3000]] * len(rows.asked) and len(rows.asked) <= 3
