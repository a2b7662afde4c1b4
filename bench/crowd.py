"""Many machines that idle on one host: how long until each has answered a command, what an exec in
each takes at rest, and what it takes beside one that fills its memory."""
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import httpx

from bench.api import Api
from bench.figures import Figure, timed
from nodeworker.hypervisor import host_memory

_CLIENTS = 6
_ROUNDS = 3
# What starting them has set going is over by then.
_SETTLE_S = 20.0
# Ends by the guest's own kernel, or with what a guest has in all.
_FILL = "import sys\nheld = []\nwhile True:\n    held.append(b'x' * (1 << 20))\n"


def crowd(connect: Callable[[], Api], count: int) -> Iterator[Figure | str]:
    """`count` small sandboxes, created by six clients and used by one; a figure for each look, and
    sentences that say what else was seen. They are deleted in the end."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        callers = [connect() for _ in range(_CLIENTS)]
        made: list[str] = []
        refused: list[str] = []

        def create(number: int) -> None:
            api = callers[number % _CLIENTS]
            sandbox_id = _create(api, refused)
            made.append(sandbox_id)
            api.run(sandbox_id, "true")

        try:
            yield Figure("crowd_to_exec", [timed(lambda: list(pool.map(create, range(count))))],
                         note=f"until all {count} had answered a command")
            yield f"{len(refused)} creates were refused and repeated: {refused[-1:]}"
            time.sleep(_SETTLE_S)
            yield from _look(callers[0], made, "idle_exec")
            yield f"{host_memory.left_share():.0%} of the host's memory is left"
            yield from _beside_a_hog(callers[0], made)
        finally:
            list(pool.map(lambda each: callers[0].delete(each), made))


def _create(api: Api, refused: list[str]) -> str:
    """Create one, and as often again as the service says that waiting helps, which is noted."""
    while True:
        try:
            return api.create_running(size="small")
        except httpx.HTTPStatusError as error:
            if "Retry-After" not in error.response.headers:
                raise
            refused.append(str(error))
            time.sleep(float(error.response.headers["Retry-After"]))


def _look(api: Api, made: list[str], name: str) -> Iterator[Figure]:
    for _ in range(_ROUNDS):
        yield Figure(name, [timed(partial(api.run, each, "true")) for each in made])


def _beside_a_hog(api: Api, made: list[str]) -> Iterator[Figure | str]:
    hog, *others = made
    api.start(hog, "python3", "-c", _FILL)
    yield from _look(api, others, "beside_a_hog")
    running = sum(api.get(each)["status"] == "running" for each in others)
    yield f"{running} of the other {len(others)} run"
    answered = False
    with suppress(httpx.HTTPStatusError):
        answered = api.run(hog, "true")["exitCode"] == 0
    status = api.get(hog)["status"]
    yield f"the one that filled its memory is {status}, it {'answers' if answered else 'is silent'}"
