"""What many sandboxes leave behind that were created, used and deleted: what the stack's processes
and the host hold before and after.

A tenth as many come first and are not counted, so that what is opened or loaded at first use is
there before. Machines that stand ready for creates are nobody's leavings and are not counted.
"""
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.api import Api
from bin.stack.leftovers import processes_of
from config.settings import Settings

_CLIENTS = 3
# What is removed in the background is gone by then, and so are connections to the database that
# were made for the busiest moment: those of over two minutes are closed.
_SETTLE_S = 150.0
_WIDTH = 30


@dataclass(frozen=True)
class Held:
    """How much of something there was before and after."""

    name: str
    before: float
    after: float

    @property
    def more(self) -> float:
        """By what share more is held afterwards."""
        return self.after / self.before - 1 if self.before else float(self.after > 0)

    def row(self) -> str:
        """One line of the report."""
        return (f"{self.name:<{_WIDTH}} {self.before:12.0f} {self.after:12.0f}"
                f" {self.more * 100:+8.1f}")


HEADER = f"{'what is held':<{_WIDTH}} {'before':>12} {'after':>12} {'%':>8}"


def churn(connect: Callable[[], Api], settings: Settings, count: int) -> list[Held]:
    """Create, use and delete `count` sandboxes, three at a time."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        callers = [connect() for _ in range(_CLIENTS)]

        def use(number: int) -> None:
            _use_one(callers[number % _CLIENTS])

        list(pool.map(use, range(count // 10)))
        before = _settled(settings)
        list(pool.map(use, range(count)))
        after = _settled(settings)
    return [Held(name, before[name], after[name]) for name in before]


def _use_one(api: Api) -> None:
    sandbox_id = api.create_running(size="small")
    api.run(sandbox_id, "true")
    api.delete(sandbox_id)


def _settled(settings: Settings) -> dict[str, float]:
    time.sleep(_SETTLE_S)
    return dict(_held(settings))


def _held(settings: Settings) -> Iterator[tuple[str, float]]:
    processes: dict[str, list[Path]] = {"our processes": [], "Postgres": []}
    for pid, command in processes_of(settings.data_dir).items():
        is_server = command.split()[0].rstrip(":").endswith("postgres")
        processes["Postgres" if is_server else "our processes"].append(Path(f"/proc/{pid}"))
    for whose, paths in processes.items():
        yield f"memory of {whose} (MB)", sum(map(_memory_kb, paths)) / 1024
        yield f"descriptors of {whose}", sum(map(_descriptors, paths))
    yield "network namespaces", len(list(Path("/run/netns").iterdir()))
    yield "network interfaces", len(os.listdir("/sys/class/net"))
    yield "control groups", sum(1 for _ in os.walk("/sys/fs/cgroup"))
    yield "mounts", len(Path("/proc/mounts").read_text().splitlines())
    yield "packet rules", len(_output("nft", "list", "ruleset").splitlines())
    yield "files of the node", sum(1 for _ in settings.node_dir.rglob("*"))
    yield "disk use of the node (MB)", int(_output("du", "-sm", str(settings.node_dir)).split()[0])


def _memory_kb(process: Path) -> int:
    """What it has for itself and its share of what it has with others, in KiB (proc(5), Pss); 0 if
    it has ended."""
    with suppress(OSError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def _descriptors(process: Path) -> int:
    with suppress(OSError):
        return len(os.listdir(process / "fd"))
    return 0


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
