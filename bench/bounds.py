"""How far each figure may be from its floor: the tables that `make bench` is judged by, and that
the README and `docs/presets.md` repeat.

A bound is a ratio of medians of one run. Where it is not the goal itself it is so far above what a
quiet run shows that it is passed on a busy machine, and not by a step that was added to the way. Of
an agent preset it is what the preset may add to a plain create.
"""
import math
from collections.abc import Iterable

from bench.churn import Held
from bench.figures import Figure, percentile

# Figure -> ratio to its floor that it must not exceed. Those without a floor are only told.
BOUNDS: dict[str, float] = {
    # goals, as they are
    "create_to_exec": 1.25,
    "create_spare_to_exec": 0.5,
    "wake_kept_to_exec": 0.4,
    "wake_to_exec": 1.25,
    "fork_to_exec": 1.25,
    "api_get": 1.11,
    "api_get_many": 1.11,
    "preview_wake": 1.3,
    "preview_throughput": 1.3,
    # the goals are 0.9, 0.9 and 0.8 of nginx: 1.11, 1.11 and 1.25
    "static_page": 1.25,
    "static_root": 1.25,
    "static_route": 1.5,
    "static_script": 1.11,
    "served_app": 1.5,
    "exec_overhead": 1.6,
    "enqueue": 8.0,
}

# Figure of `make bench ARGS=--bursts` or `--crowd` -> milliseconds, and the share of its samples
# that must not take longer: half of all bursts, and every machine of a crowd.
BOUNDS_MS: dict[str, tuple[float, float]] = {
    "burst_to_exec": (3000, 0.5),
    "burst_spare_to_exec": (1200, 0.5),
    "crowd_to_exec": (60_000, 1.0),
    "idle_exec": (2000, 1.0),
    "beside_a_hog": (2000, 1.0),
}
# Of `make bench ARGS=--churn`: by what share more may be held afterwards.
CHURN_BOUND = 0.05

# Figure of `make bench ARGS=--presets` -> seconds above its floor that it must not exceed.
PRESET_BOUNDS_S: dict[str, float] = {"create_codex": 3.0, "create_claude": 3.0, "create_pi": 6.0}


def list_exceeded(figures: Iterable[Figure]) -> list[str]:
    """A sentence for each figure that is above its bound, or that has one and was not measured."""
    measured = {figure.name: figure.ratio for figure in figures}
    told = []
    for name, bound in BOUNDS.items():
        ratio = measured.get(name)
        if ratio is None:
            told.append(f"{name} was not measured against its floor; its bound is {bound:.2f}")
        elif ratio > bound:
            told.append(f"{name} is {ratio:.2f} times its floor, more than its bound {bound:.2f}")
    return told


def list_slow(figures: Iterable[Figure]) -> list[str]:
    """A sentence for each figure with a bound in milliseconds that took longer."""
    told = []
    for figure in figures:
        bound_ms, share = BOUNDS_MS.get(figure.name, (math.inf, 1.0))
        took_ms = percentile(figure.samples, share)
        if took_ms > bound_ms:
            told.append(f"{figure.name} took {took_ms / 1000:.2f} s, longer than its bound"
                        f" {bound_ms / 1000:.1f} s")
    return told


def list_left_behind(held: Iterable[Held]) -> list[str]:
    """A sentence for each thing of which more is held than before, beyond what is allowed. What
    Postgres keeps in memory is not judged: it fills with rows, up to what it is allowed."""
    return [f"{each.name}: {each.more:.1%} more than before, more than {CHURN_BOUND:.0%}"
            for each in held if each.after > each.before * (1 + CHURN_BOUND)
            and "memory of Postgres" not in each.name]


def list_presets_exceeded(figures: Iterable[Figure]) -> list[str]:
    """The same for what presets add to a create."""
    measured = {figure.name: figure.added for figure in figures}
    told = []
    for name, bound_s in PRESET_BOUNDS_S.items():
        added = measured.get(name)
        if added is None:
            told.append(f"{name} was not measured beside a plain create; its bound is"
                        f" {bound_s:.1f} s more")
        elif added > bound_s * 1000:
            told.append(f"{name} takes {added / 1000:.2f} s more than a plain create, more than its"
                        f" bound {bound_s:.1f} s")
    return told
