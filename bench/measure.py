"""The measurements, each returning a `Figure` with its floor from the same run (design.md, section
5)."""
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import redis

from bench.api import Api
from bench.figures import Figure, timed
from bench.floor import Floor
from bench.load import CONNECTIONS, ROUNDS, load_url
from config.settings import Settings
from guest.client.agent_client import AgentClient
from models.database import connection
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from nodeworker.hypervisor.driver import Shape
from nodeworker.hypervisor.qemu.driver import QemuDriver
from nodeworker.hypervisor.qemu.suspended import warm_spares
from nodeworker.hypervisor.qemu.suspended.making_spares import make as make_spare
from tasks.publisher import CeleryQueue

BENCH_QUEUE = "bench.discard"
SMALL = Shape(1, 1024)


def create_to_exec(api: Api, settings: Settings, floor: Floor,
                   count: int) -> tuple[Figure, Figure]:
    """POST create that waits until running, first command answered: without a spare, and with one;
    floor of both: copy, restore and first command by a bare script."""
    plain = Figure("create_to_exec", note="no spare stood ready")
    spare = Figure("create_spare_to_exec", note="a spare stood ready")
    host = QemuDriver(settings).host
    image = host.warm_image_dir(SMALL).name
    without = QemuDriver(replace(settings, warm_spares=0))
    for _ in range(count):
        for figure in (plain, spare):
            if figure is plain:
                without.tend_suspended()
            elif not warm_spares.count_ready(host):
                make_spare(host, image)
            figure.floor.append(floor.create_to_exec())
            made: list[str] = []

            def once(made: list[str] = made) -> None:
                made.append(api.create_running(size="small"))
                api.run(made[0], "true")

            figure.samples.append(timed(once))
            api.delete(made[0])
    return plain, spare


def sleep_and_wake(api: Api, settings: Settings, floor: Floor,
                   count: int) -> tuple[Figure, Figure, Figure]:
    """Hibernate, then wake and first command: restored, because its process was given up, and with
    its process kept; floor of both: the same restore by a bare script."""
    hibernate = Figure("hibernate", note="flush to disk included")
    wake = Figure("wake_to_exec", note="its process was given up")
    kept = Figure("wake_kept_to_exec", note="its process was kept")
    keeps_none = QemuDriver(replace(settings, kept_machines=0, warm_spares=0))
    with sandbox(api) as sandbox_id:
        def once() -> None:
            api.act(sandbox_id, "wake")
            api.run(sandbox_id, "true")

        for _ in range(count):
            for figure in (wake, kept):
                api.run(sandbox_id, "true")
                hibernate.samples.append(timed(lambda: api.act(sandbox_id, "hibernate")))
                if figure is wake:
                    keeps_none.tend_suspended()
                figure.floor.append(floor.wake_to_exec())
                figure.samples.append(timed(once))
    return hibernate, wake, kept


def fork_to_exec(api: Api, floor: Floor, count: int) -> tuple[Figure, Figure]:
    """POST fork of a running sandbox that waits until the fork runs, its first command answered;
    and how long the source stood still for it."""
    fork, pause = Figure("fork_to_exec"), Figure(
        "snapshot_pause", note="inside the source, as the driver measured it")
    with sandbox(api) as source:
        for _ in range(count):
            fork.floor.append(floor.create_to_exec())
            made: list[str] = []

            def once(made: list[str] = made) -> None:
                made.append(api.fork_running(source))
                api.run(made[0], "true")

            fork.samples.append(timed(once))
            api.delete(made[0])
        with connection():
            pause.samples = [
                row.pause_ms
                for row in Snapshot.select().where(Snapshot.source_sandbox_id == source)
                if row.pause_ms
            ]
    return fork, pause


def exec_overhead(api: Api, settings: Settings, count: int) -> Figure:
    """A trivial command through the API; floor: the same agent called directly. The note gives the
    difference."""
    figure = Figure("exec_overhead")
    with sandbox(api) as sandbox_id:
        with connection():
            row = Sandbox.get_by_id(sandbox_id)
        agent = AgentClient(settings.node_address, row.agent_port, row.agent_token)
        for _ in range(count):
            figure.floor.append(timed(lambda: agent.exec(argv=["true"])))
            figure.samples.append(timed(lambda: api.run(sandbox_id, "true")))
    return figure


def api_get(api: Api, settings: Settings, count: int) -> Figure:
    """GET one sandbox; floor: a bare Flask and peewee route that reads the same row, served the
    same way."""
    figure = Figure("api_get")
    with sandbox(api) as sandbox_id, bare_app() as url:
        with httpx.Client(base_url=url) as bare:
            for _ in range(count):
                figure.floor.append(timed(lambda: bare.get(f"/{sandbox_id}").raise_for_status()))
                figure.samples.append(timed(lambda: api.get(sandbox_id)))
    return figure


def api_get_many(api: Api, settings: Settings) -> Figure:
    """The same from many connections at once, as fast as they can; the floor has as many
    processes."""
    figure = Figure("api_get_many", note=f"1000 requests, {CONNECTIONS} at once")
    with sandbox(api) as sandbox_id, bare_app(workers=settings.api_workers) as url:
        asked = f"{settings.api_url}/v1/sandboxes/{sandbox_id}"
        for _ in range(ROUNDS):
            figure.floor.append(load_url(f"{url}/{sandbox_id}", api.credential))
            figure.samples.append(load_url(asked, api.credential))
    return figure


def enqueue(settings: Settings, count: int) -> Figure:
    """Publish one message; floor: one LPUSH of its size to the same Redis."""
    figure = Figure("enqueue")
    queue, link = CeleryQueue(settings), redis.Redis.from_url(settings.redis_url)
    try:
        for _ in range(count):
            figure.floor.append(timed(lambda: link.lpush(BENCH_QUEUE, "x" * 700)))
            figure.samples.append(timed(lambda: queue.publish(BENCH_QUEUE, "bench.nothing", {})))
    finally:
        link.delete(BENCH_QUEUE)
    return figure


@contextmanager
def sandbox(api: Api) -> Iterator[str]:
    """A running sandbox for the length of the block."""
    sandbox_id = api.create_running(size="small")
    try:
        api.run(sandbox_id, "true")
        yield sandbox_id
    finally:
        api.delete(sandbox_id)


@contextmanager
def bare_app(port: int = 18999, workers: int = 1) -> Iterator[str]:
    """The floor's web server, with the server of the API and its own worker class."""
    process = subprocess.Popen([
        sys.executable, "-m", "gunicorn", "-k", "gthread", "--workers", str(workers), "--threads",
        "4", "-b", f"127.0.0.1:{port}", "--log-level", "error", "bench.bare_app:app"
    ])
    url = f"http://127.0.0.1:{port}"
    try:
        _until(lambda: httpx.get(f"{url}/none").status_code == 404)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _until(answers: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if answers():
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("the floor's web server did not come up")
        time.sleep(0.05)
