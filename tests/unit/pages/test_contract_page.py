"""docs/contract.md: every heading of the specification, only known states, and only tests that
exist. That no sentence is missing holds test_contract_sentences.py."""
import ast
import re
from functools import lru_cache
from typing import NamedTuple

import pytest

from bin.stack.site import ROOT

TESTS = ROOT / "tests"
CHOICES = "# Our choices"
STATE = re.compile(r"done|nothing to do")
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


class Line(NamedTuple):
    """A row of one of the page's tables."""

    heading: str
    text: str
    state: str
    tests: str


def read_page() -> tuple[list[str], list[Line]]:
    """Headings and rows; the page's own legend comes before the first heading of the
    specification."""
    headings: list[str] = []
    lines: list[Line] = []
    for text in (ROOT / "docs" / "contract.md").read_text().splitlines()[1:]:
        if text.startswith("#"):
            headings.append(text)
        elif headings and text.startswith("|") and not text.startswith(("| line |", "|---")):
            lines.append(
                Line(headings[-1],
                     *(cell.strip() for cell in text.strip().strip("|").rsplit("|", 2))))
    return headings, lines


def short(heading: str) -> str:
    """A heading without what the specification adds in brackets."""
    return re.sub(r" \(.*", "", heading)


PAGE_HEADINGS, LINES = read_page()


@lru_cache
def functions_of(path: str) -> frozenset[str]:
    """Names of the functions of a test module; empty if there is no such file."""
    file = TESTS / path
    if not file.is_file():
        return frozenset()
    return frozenset(
        node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef))


def named(line: Line) -> str:
    return f"{line.heading.strip('# ')}: {line.text[:60]}"


def test_every_heading_of_the_specification_in_its_order():
    text = (ROOT / "docs" / "contract.txt").read_text()
    headings = [short(line) for line in text.splitlines() if line.startswith("##")]
    assert list(map(short, PAGE_HEADINGS)) == [*headings, CHOICES]


@pytest.mark.parametrize("line", LINES, ids=named)
def test_a_line_says_where_it_stands_and_only_done_names_tests(line):
    assert STATE.fullmatch(line.state), line.state
    found = TEST.findall(line.tests)
    assert TEST.sub("", line.tests).strip(", ") == "", f"not understood: {line.tests}"
    assert bool(found) is (
        line.state == "done"), "done names the tests that hold it, the others have none"
    for path, name in found:
        assert name in functions_of(path), f"there is no {path}::{name}"


def test_nothing_is_said_twice():
    said = [(line.heading, line.text) for line in LINES]
    assert len(said) == len(set(said))
