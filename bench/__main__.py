"""Measure a running stack beside its floor: `python -m bench [--count N] [--presets | --bursts |
--churn | --crowd]`, called by `make bench`.

Figures and floors alternate within one run, because timings of shared machines drift; what counts
is the ratio, and of presets what they add.
"""
import argparse
import os
import sys

from bench import apps, measure, previews
from bench.api import Api
from bench.bounds import (
    BOUNDS,
    BOUNDS_MS,
    PRESET_BOUNDS_S,
    list_exceeded,
    list_left_behind,
    list_presets_exceeded,
    list_slow,
)
from bench.bursts import bursts
from bench.churn import HEADER as HELD_HEADER
from bench.churn import churn
from bench.cpu import cpu_of_calls
from bench.crowd import crowd
from bench.figures import HEADER, Figure
from bench.floor import Floor
from bench.presets import create_presets
from config.settings import get_settings
from models.database import connect


def run(count: int) -> list[Figure]:
    """All figures, `count` samples for each that moves a machine and more for the quick ones."""
    settings = get_settings()
    connect(settings.database_url, pool_size=4, application="bench")
    api = connect_api()
    figures: list[Figure] = []
    with Floor(settings) as floor:
        figures.extend(measure.create_to_exec(api, settings, floor, count))
        figures.extend(measure.sleep_and_wake(api, settings, floor, count))
        figures.extend(measure.fork_to_exec(api, floor, count))
    with measure.sandbox(api) as sandbox_id:
        figures.append(previews.preview_wake(api, settings, sandbox_id, count))
        figures.append(previews.preview_throughput(api, settings, sandbox_id))
        figures.extend(apps.static_throughput(settings, sandbox_id))
        figures.append(apps.served_throughput(settings, sandbox_id))
    figures.append(measure.exec_overhead(api, settings, count * 5))
    figures.extend(cpu_of_calls(api, settings))
    figures.append(measure.api_get(api, settings, count * 30))
    figures.append(measure.api_get_many(api, settings))
    figures.append(measure.enqueue(settings, count * 30))
    return figures


def run_presets(count: int) -> list[Figure]:
    """A create of each preset, `count` times, beside a plain one."""
    return create_presets(connect_api(), count)


def run_bursts(count: int) -> list[Figure]:
    """Creates that come at once, `count` times without spares and with them, and forks."""
    return bursts(connect_api, get_settings(), count)


def connect_api() -> Api:
    """A client of the stack in our environment."""
    return Api(os.environ["SVC_API_URL"], os.environ["SVC_API_KEY"])


def main() -> int:
    """Print the table, and what is above its bound; 0 only when nothing is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10,
                        help="samples of each machine figure (default 10)")
    parser.add_argument("--presets", action="store_true",
                        help="measure the creates of agent presets, and nothing else")
    parser.add_argument("--bursts", action="store_true",
                        help="measure creates and forks that come at once, and nothing else")
    parser.add_argument("--churn", action="store_true",
                        help="create, use and delete so many, and tell what they leave behind")
    parser.add_argument("--crowd", action="store_true",
                        help="let so many small sandboxes idle at once, one fill its memory")
    options = parser.parse_args()
    if options.churn:
        exceeded = _tell_churn(options.count)
    elif options.crowd:
        exceeded = _tell_crowd(options.count)
    else:
        measure_one = run_presets if options.presets else run_bursts if options.bursts else run
        figures = measure_one(options.count)
        print(HEADER)
        for figure in figures:
            print(figure.row(_bound_of(figure)))
        judge = {run: list_exceeded, run_presets: list_presets_exceeded, run_bursts: list_slow}
        exceeded = judge[measure_one](figures)
    for sentence in exceeded:
        print(f"ABOVE ITS BOUND: {sentence}")
    return 1 if exceeded else 0


def _bound_of(figure: Figure) -> str:
    """Its bound as the report shows it: of its ratio, or in seconds."""
    if figure.name in BOUNDS:
        return f"{BOUNDS[figure.name]:.2f}"
    if figure.name in BOUNDS_MS:
        return f"{BOUNDS_MS[figure.name][0] / 1000:g} s"
    added_s = PRESET_BOUNDS_S.get(figure.name)
    return f"+{added_s:g} s" if added_s else "-"


def _tell_churn(count: int) -> list[str]:
    held = churn(connect_api, get_settings(), count)
    print("\n".join([HELD_HEADER, *(each.row() for each in held)]))
    return list_left_behind(held)


def _tell_crowd(count: int) -> list[str]:
    print(HEADER)
    figures = []
    for seen in crowd(connect_api, count):
        if isinstance(seen, Figure):
            figures.append(seen)
            print(seen.row(_bound_of(seen)), flush=True)
        else:
            print(seen, flush=True)
    return list_slow(figures)


if __name__ == "__main__":
    sys.exit(main())
