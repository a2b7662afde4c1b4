"""Creates that come at once: from the first request until the last sandbox has answered a command.

A floor of its own a burst has not: beside it stands one create by the bare script.
"""
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from bench.api import Api
from bench.figures import Figure, timed
from bench.floor import Floor
from bench.measure import SMALL
from config.settings import Settings
from nodeworker.hypervisor.qemu.driver import QemuDriver
from nodeworker.hypervisor.qemu.suspended import warm_spares
from nodeworker.hypervisor.qemu.suspended.making_spares import make as make_spare

AT_ONCE = 10


def bursts(connect: Callable[[], Api], settings: Settings, count: int) -> tuple[Figure, Figure]:
    """`count` bursts without spares, and as many with one for each sandbox, in turn; each caller
    has a connection of its own."""
    plain = Figure("burst_to_exec", note=f"{AT_ONCE} at once, no spare stood ready")
    spare = Figure("burst_spare_to_exec", note=f"{AT_ONCE} at once, a spare for each")
    host, callers = QemuDriver(settings).host, [connect() for _ in range(AT_ONCE)]
    image = host.warm_image_dir(SMALL).name
    without = QemuDriver(replace(settings, warm_spares=0))
    with Floor(settings) as floor, ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(count):
            for figure in (plain, spare):
                figure.floor.append(floor.create_to_exec())
                without.tend_suspended()
                while figure is spare and warm_spares.count_ready(host).get(image, 0) < AT_ONCE:
                    make_spare(host, image)
                made: list[str] = []

                def all_at_once(made: list[str] = made) -> None:
                    made.extend(pool.map(_create_to_exec, callers))

                figure.samples.append(timed(all_at_once))
                for sandbox_id in made:
                    callers[0].delete(sandbox_id)
    return plain, spare


def _create_to_exec(api: Api) -> str:
    sandbox_id = api.create_running(size="small")
    api.run(sandbox_id, "true")
    return sandbox_id
