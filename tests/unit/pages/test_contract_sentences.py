"""Every sentence and table row of the specification (docs/contract.txt) has a row in
docs/contract.md, under the same heading.

A table row is found by its name or path, a numbered item by its number, anything else by its
telling words. What only introduces, points elsewhere, or says that something is not shown, needs no
row.
"""
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import pytest

from bin.stack.site import ROOT
from tests.unit.pages.test_contract_page import CHOICES, LINES, short

SPECIFICATION = (ROOT / "docs" / "contract.txt").read_text().splitlines()
PREFACE = "# Sandbox Service Specification"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SILENT = re.compile(r".*(:|not shown\.|is in the Endpoints part\.)$")
STOP = frozenset(
    "the a an of and or to in is are for by with on at its it as be that this from not no only any"
    " may can each when which their they per has have into than then was were after before until if"
    " also them one all so up out does do but must used use via other".split())


class Sentence(NamedTuple):
    """A piece of the specification that has to be found again; `number` is that of its item."""

    heading: str
    text: str
    number: str
    cells: tuple[str, ...]


def sentences() -> Iterator[Sentence]:
    heading = ""
    for line, following in zip(SPECIFICATION, [*SPECIFICATION[1:], ""], strict=True):
        if line.startswith("#"):
            heading = short(line)
        elif line.startswith("|"):
            if not is_rule(line) and not is_rule(following):
                cells = tuple(cell.strip() for cell in line.strip("| ").split(" | "))
                yield Sentence(heading, line, "", cells)
        elif line and heading != PREFACE:
            item = re.match(r"(?:(\d+)\.|-) +", line)
            text = line[item.end():] if item else line
            for sentence in re.split(r"(?<=[.;]) +(?=[A-Z`{])", text):
                if not SILENT.fullmatch(sentence):
                    yield Sentence(heading, sentence, (item and item[1]) or "", ())


def is_rule(line: str) -> bool:
    return line.startswith("|") and set(line) <= set("|- ")


def words(text: str) -> set[str]:
    """The telling words of a text, without their endings."""
    found = re.findall(r"[a-z0-9_./+<>-]+", re.sub(r"[`*|{}()\[\],;:\"']", " ", text.lower()))
    return {
        re.sub(r"(ing|ies|es|ed|s)$", "", word) if len(word) > 4 and word.isalpha() else word
        for word in (each.strip("./-") for each in found)
        if word and word not in STOP
    }


@lru_cache
def rows(heading: str) -> tuple[str, ...]:
    """What stands under a heading of the page."""
    return tuple(line.text for line in LINES
                 if short(line.heading) == heading and line.heading != CHOICES)


def is_found(sentence: Sentence) -> bool:
    there = rows(sentence.heading)
    if sentence.cells:
        return any(name_of(sentence.cells).lower() in row.lower() for row in there)
    own = words(sentence.text)
    if sentence.number:
        mark = re.compile(rf"(rules? )?{sentence.number}\b|.*\b{sentence.number}\.")
        there = tuple(row for row in there if mark.match(row))
        wanted = min(2, len(own))
    else:
        wanted = max(1, round(len(own) * 0.4))
    return len(own & set().union(*map(words, there))) >= wanted


def name_of(cells: tuple[str, ...]) -> str:
    """What a table row is about: the end of a route's path, or the first word of its first cell."""
    if cells[0] not in METHODS:
        return cells[0].split(" ")[0].strip("`")
    parts = [part for part in re.split(r"[/?`=]", cells[1]) if part and part[0] not in "{<"]
    return parts[-1]


ALL = list(sentences())


@pytest.mark.parametrize(
    "sentence", ALL, ids=lambda one: f"{one.heading.strip('# ')}: {one.text[:60]}")
def test_it_has_a_row(sentence):
    assert is_found(sentence), f"{sentence.heading} says: {sentence.text}"


def test_the_whole_specification_was_read():
    assert len(ALL) > 250
    assert {short(line) for line in SPECIFICATION if line.startswith("#")} - {PREFACE} <= {
        short(line.heading) for line in LINES} | {
            "## Resources and their fields", "## Authentication"}
