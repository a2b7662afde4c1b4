"""Creates that come at once, and forks of one sandbox: from the first request until the last new
sandbox has answered a command.

A floor of its own a burst has not: beside it stands one create by the bare script.
"""
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from bench.api import Api
from bench.figures import Figure, timed
from bench.floor import Floor
from bench.measure import SMALL, sandbox
from config.settings import Settings
from nodeworker.hypervisor.qemu.driver import QemuDriver
from nodeworker.hypervisor.qemu.suspended import warm_spares
from nodeworker.hypervisor.qemu.suspended.making_spares import make as make_spare

AT_ONCE = 10


def bursts(connect: Callable[[], Api], settings: Settings, count: int) -> list[Figure]:
    """`count` bursts of creates without spares, as many with one for each sandbox, and of forks, in
    turn; each caller has a connection of its own."""
    plain = Figure("burst_to_exec", note=f"{AT_ONCE} at once, no spare stood ready")
    spare = Figure("burst_spare_to_exec", note=f"{AT_ONCE} at once, a spare for each")
    fork = Figure("burst_fork_to_exec", note=f"{AT_ONCE} forks of one sandbox at once")
    host, callers = QemuDriver(settings).host, [connect() for _ in range(AT_ONCE)]
    image = host.warm_image_dir(SMALL).name
    without = QemuDriver(replace(settings, warm_spares=0))
    with (
        Floor(settings) as floor,
        sandbox(callers[0]) as source,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        for _ in range(count):
            for figure in (plain, spare, fork):
                figure.floor.append(floor.create_to_exec())
                without.tend_suspended()
                while figure is spare and warm_spares.count_ready(host).get(image, 0) < AT_ONCE:
                    make_spare(host, image)
                made: list[str] = []
                one = partial(_fork_to_exec, source) if figure is fork else _create_to_exec

                def all_at_once(made: list[str] = made,
                                one: Callable[[Api], str] = one) -> None:
                    made.extend(pool.map(one, callers))

                figure.samples.append(timed(all_at_once))
                for sandbox_id in made:
                    callers[0].delete(sandbox_id)
    return [plain, spare, fork]


def _fork_to_exec(source: str, api: Api) -> str:
    sandbox_id = api.fork_running(source)
    api.run(sandbox_id, "true")
    return sandbox_id


def _create_to_exec(api: Api) -> str:
    sandbox_id = api.create_running(size="small")
    api.run(sandbox_id, "true")
    return sandbox_id
