"""`make bench` fails when a ratio is above its bound, and the README tells the bounds that hold."""
import re
import sys

import pytest

import bench.__main__ as bench
from bench.bounds import BOUNDS, list_exceeded
from bench.figures import Figure
from bin.stack.site import ROOT


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
    assert capsys.readouterr().out.count("ABOVE ITS BOUND") == (len(BOUNDS) if code else 0)


def test_the_readme_tells_these_bounds_and_ratios_within_them():
    rows = re.findall(r"^\| `(\w+)`[^|]*\|(.+)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    cells = {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}
    assert {name: float(row[-1]) for name, row in cells.items() if row[-1]} == BOUNDS
    assert all(float(cells[name][-2]) <= bound for name, bound in BOUNDS.items())
