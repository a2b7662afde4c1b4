"""`make bench` fails when a figure is above its bound, and the pages tell the bounds that hold."""
import re
import sys

import pytest

import bench.__main__ as bench
from bench.bounds import (
    BOUNDS,
    BOUNDS_MS,
    PRESET_BOUNDS_S,
    list_exceeded,
    list_left_behind,
    list_presets_exceeded,
    list_slow,
)
from bench.churn import Held
from bench.figures import Figure
from bin.stack.site import ROOT
from guest.presets import SLUGS


def figures(**ratios):
    return [Figure(name, [10.0 * ratio], [10.0]) for name, ratio in ratios.items()]


def test_at_its_bound_a_figure_passes_and_above_it_is_named():
    assert list_exceeded(figures(**BOUNDS)) == []
    for name in BOUNDS:
        told, = list_exceeded(figures(**{**BOUNDS, name: BOUNDS[name] + 0.1}))
        assert told.startswith(f"{name} is ")


def test_a_figure_that_was_not_measured_does_not_pass():
    left = dict(list(BOUNDS.items())[1:])
    assert len(list_exceeded(figures(**left))) == 1
    assert len(list_exceeded([*figures(**left), Figure("create_to_exec", [1.0])])) == 1


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.5, 1)])
def test_the_exit_code_tells(monkeypatch, capsys, factor, code):
    """What is measured is exchanged here, because a machine is needed for it."""
    monkeypatch.setattr(sys, "argv", ["bench"])
    monkeypatch.setattr(bench, "run", lambda count: figures(
        **{name: bound * factor for name, bound in BOUNDS.items()}))
    assert bench.main() == code
    told = capsys.readouterr().out
    assert told.count("ABOVE ITS BOUND") == (len(BOUNDS) if code else 0)
    for name, bound in BOUNDS.items():
        assert re.search(rf"^{name} .* {bound:.2f} ", told, re.MULTILINE), "the bound is shown"


def test_the_readme_tells_these_bounds_and_ratios_within_them():
    rows = re.findall(r"^\| `(\w+)`[^|]*\|(.+)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    cells = {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}
    assert {name: float(row[-1]) for name, row in cells.items() if row[-1]} == BOUNDS
    assert all(float(cells[name][-2]) <= bound for name, bound in BOUNDS.items())


def slow(factor):
    """Figures of which half of the samples takes that much of the bound in time, or all do."""
    return [Figure(name, [bound_ms * factor] * (2 if share == 0.5 else 3) + [9e9] * (share == 0.5))
            for name, (bound_ms, share) in BOUNDS_MS.items()]


def test_half_of_the_bursts_and_all_of_a_crowd_are_within_their_time():
    assert list_slow(slow(1)) == []
    assert len(list_slow(slow(1.1))) == len(BOUNDS_MS)
    most_of_a_crowd = Figure("idle_exec", [1.0] * 99 + [2001.0])
    assert list_slow([most_of_a_crowd]) == [
        "idle_exec took 2.00 s, longer than its bound 2.0 s"]
    assert list_slow([Figure("burst_fork_to_exec", [9e9])]) == [], "it is only told"


def test_what_is_left_behind_is_named_but_for_what_postgres_keeps_in_memory():
    held = [Held("memory of our processes (MB)", 800, 840), Held("network namespaces", 7, 8),
            Held("mounts", 0, 1), Held("memory of Postgres (MB)", 90, 190), Held("files", 9, 3)]
    assert [told.partition(":")[0] for told in list_left_behind(held)] == [
        "network namespaces", "mounts"]


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.1, 1)])
@pytest.mark.parametrize("option", ["bursts", "crowd", "churn"])
def test_the_exit_code_of_each_measurement_tells(monkeypatch, capsys, option, factor, code):
    monkeypatch.setattr(sys, "argv", ["bench", f"--{option}"])
    monkeypatch.setattr(bench, "run_bursts", lambda count: slow(factor)[:2])
    monkeypatch.setattr(bench, "crowd", lambda connect, count: [*slow(factor)[2:], "and so on"])
    monkeypatch.setattr(bench, "churn", lambda *_: [Held("mounts", 100, 100 * factor)])
    assert bench.main() == code
    assert ("ABOVE ITS BOUND" in capsys.readouterr().out) == bool(code)


def presets(factor, **changed):
    """The presets with that much of their bounds above a floor of 300 ms."""
    added = {name: bound * factor for name, bound in PRESET_BOUNDS_S.items()} | changed
    return [Figure(name, [300.0 + each * 1000] * 3, [300.0] * 3) for name, each in added.items()]


def test_a_preset_may_add_its_bound_to_a_plain_create_and_no_more():
    assert list_presets_exceeded(presets(1)) == []
    for name, bound in PRESET_BOUNDS_S.items():
        told, = list_presets_exceeded(presets(1, **{name: bound + 0.1}))
        assert told.startswith(f"{name} takes {bound + 0.1:.2f} s more")


def test_a_preset_that_was_not_measured_does_not_pass():
    assert len(list_presets_exceeded([])) == len(PRESET_BOUNDS_S)
    assert len(list_presets_exceeded([*presets(1)[1:], Figure("create_codex", [1.0])])) == 1


@pytest.mark.parametrize(("factor", "code"), [(0.9, 0), (1.1, 1)])
def test_the_exit_code_of_the_presets_tells(monkeypatch, capsys, factor, code):
    """Those without a bound are only told."""
    made = [*presets(factor), Figure("create_lfg", [99_000.0], [300.0])]
    monkeypatch.setattr(sys, "argv", ["bench", "--presets"])
    monkeypatch.setattr(bench, "connect_api", lambda: None)
    monkeypatch.setattr(bench, "create_presets", lambda api, count: made)
    assert bench.main() == code
    assert capsys.readouterr().out.count("ABOVE ITS BOUND") == code * len(PRESET_BOUNDS_S)


def test_what_is_measured_of_presets_has_these_names():
    assert set(PRESET_BOUNDS_S) <= {f"create_{slug}" for slug in SLUGS}


def test_the_page_about_presets_tells_these_bounds():
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \| (\d+) s \|$",
                      (ROOT / "docs/presets.md").read_text(), re.MULTILINE)
    assert {f"create_{slug}": float(bound) for slug, bound in rows} == PRESET_BOUNDS_S
