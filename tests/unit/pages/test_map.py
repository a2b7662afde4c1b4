"""The table of changes in docs/architecture.md leads to files and folders that exist."""
import re

from bin.stack.site import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
TABLE = PAGE.split("### What you want to change, and where", 1)[1].split("\n### ", 1)[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and "`" in line]


def test_the_table_answers_thirty_everyday_questions():
    assert len(ROWS) >= 30


def test_every_path_in_the_table_exists():
    paths = [path for row in ROWS for path in re.findall(r"`([^`]+)`", row.split("|")[2])]
    assert len(paths) > len(ROWS)
    assert [path for path in paths if not (ROOT / path).exists()] == []
