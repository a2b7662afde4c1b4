"""A body on its way to an upstream: how long nothing of it may be taken, and that nothing is left
of a request that is given up."""
import asyncio

import pytest

from app.guest_gateway.llm.sending import Sending

PIECES = 8
BODY = [b"a" * PIECES * 64 * 1024]


class Answer:
    """Of an upstream."""

    closed = False

    def close(self):
        self.closed = True


async def sent(body, answer, *, pause_s=0.0, stop_after=None):
    """Takes the body piece by piece, as aiohttp does, and answers."""
    taken = 0
    async for piece in body:
        taken += len(piece)
        await asyncio.sleep(pause_s)
        if stop_after is not None and taken >= stop_after:
            await asyncio.Event().wait()
    assert taken == body.size_bytes
    return answer


@pytest.mark.parametrize("stop_after", [1, 3 * 64 * 1024])
def test_one_that_takes_nothing_more_is_given_up(stop_after):
    body = Sending(BODY, 0.1)
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(body.watch(sent(body, Answer(), stop_after=stop_after)))


@pytest.mark.slow
def test_one_that_takes_something_now_and_then_may_take_long():
    body, answer = Sending(BODY, 2.0), Answer()
    assert asyncio.run(body.watch(sent(body, answer, pause_s=0.4))) is answer
    assert not answer.closed


def test_an_answer_may_take_its_time_once_all_is_sent():
    """That is for aiohttp to count."""
    body, answer = Sending(BODY, 0.05), Answer()

    async def late():
        await sent(body, answer)
        await asyncio.sleep(0.3)
        return answer

    assert asyncio.run(body.watch(late())) is answer


@pytest.mark.parametrize("size", [1, PIECES * 64 * 1024])
def test_what_goes_wrong_is_told_as_it_is(size):
    body = Sending([b"a" * size], 5)

    async def refused():
        async for _ in body:
            raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        asyncio.run(body.watch(refused()))


def test_a_caller_who_leaves_ends_it():
    body, ended = Sending(BODY, 60), []

    async def asking():
        try:
            await sent(body, Answer(), stop_after=1)
        finally:
            ended.append(True)

    async def leave():
        watching = asyncio.ensure_future(body.watch(asking()))
        await asyncio.sleep(0.05)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        await asyncio.sleep(0)

    asyncio.run(leave())
    assert ended == [True]


def test_an_answer_that_comes_as_its_caller_leaves_is_closed():
    body, answer = Sending(BODY, 60), Answer()

    async def leave():
        gate = asyncio.Event()

        async def asking():
            await gate.wait()
            return answer

        watching = asyncio.ensure_future(body.watch(asking()))
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.sleep(0)  # it has its answer, and nobody has been told
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    asyncio.run(leave())
    assert answer.closed
