"""How much CPU our processes take for a call. What QEMU takes is the guest's and not counted."""
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bench.api import Api
from bench.figures import Figure
from bench.measure import sandbox
from bin.stack.leftovers import processes_of
from config.settings import Settings

_ROUNDS, _REST_S = 9, 10.0
_EXECS, _GETS = 100, 300


def cpu_of_calls(api: Api, settings: Settings) -> tuple[Figure, Figure]:
    """Milliseconds for a trivial command, and for a GET of one sandbox, each the mean of a round of
    calls that follow each other, less what our processes take at rest."""
    with sandbox(api) as sandbox_id:
        return (_cpu_of("exec_cpu", lambda: api.run(sandbox_id, "true"), _EXECS, settings),
                _cpu_of("api_get_cpu", lambda: api.get(sandbox_id), _GETS, settings))


def _cpu_of(name: str, call: Callable[[], object], count: int, settings: Settings) -> Figure:
    figure = Figure(name, note="CPU of our processes")
    at_rest_ms, rested_s = _share(settings, lambda: time.sleep(_REST_S))

    def calls() -> None:
        for _ in range(count):
            call()

    calls()
    for _ in range(_ROUNDS):
        took_ms, wall_s = _share(settings, calls)
        figure.samples.append((took_ms - at_rest_ms / rested_s * wall_s) / count)
    return figure


def _share(settings: Settings, action: Callable[[], object]) -> tuple[float, float]:
    """What `action` took of the CPU in our processes, in milliseconds, and how long it lasted, in
    seconds."""
    before, begun = _cpu_ms(settings), time.monotonic()
    action()
    wall_s, after = time.monotonic() - begun, _cpu_ms(settings)
    return sum(after[pid] - before[pid] for pid in after.keys() & before), wall_s


def _cpu_ms(settings: Settings) -> dict[int, float]:
    return {
        pid: sum(map(_ran_ms, Path(f"/proc/{pid}/task").glob("*/schedstat")))
        for pid, command in processes_of(settings.data_dir).items() if "qemu-system" not in command
    }


def _ran_ms(schedstat: Path) -> float:
    """What a thread has run; 0 once it has ended."""
    with suppress(OSError):
        return int(schedstat.read_text().split()[0]) / 1e6
    return 0.0
