"""House rules that no linter knows: sizes of modules and functions, names of files, what must not
be committed."""
import ast
import re
import subprocess

import pytest

from bin.stack.site import ROOT

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "shared"}
# Paths and names that exist on one developer's machine only, and hosts of package registries: both
# are configuration. Written in pieces, so that this file does not hold what it forbids.
MACHINE = re.compile(
    "|".join(
        (
            "/ho" + r"me/(?!user\b)\w",
            "/Us" + "ers/",
            "/ro" + r"ot/\.",
            "/wo" + r"rk/",
            "/tmp/" + r"v\b",
            "/op" + "t/(?:pypi|wheels)",
            "py" + r"pi\.org",
            "files.python" + "hosted",
            "registry.npm" + "js",
            "npm" + "mirror",
            "tuna.tsing" + "hua",
        )
    )
)
TEXT = {
    ".py", ".cfg", ".md", ".txt", ".in", ".env", ".toml", ".sh", ".yml", ".yaml", ".conf", ".j2",
    ".json", ""
}


def tracked_files():
    """Every file that is committed or about to be."""
    listing = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                             cwd=ROOT, text=True, capture_output=True, check=True)
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


FILES = tracked_files()
MODULES = [path for path in FILES if path.suffix == ".py"]
PRODUCT = [path for path in MODULES if path.relative_to(ROOT).parts[0] != "tests"]


def named(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_a_module_says_what_it_is_for_and_stays_short(path):
    text = path.read_text()
    assert len(text.splitlines()
               ) <= MAX_MODULE_LINES, f"{named(path)} is longer than {MAX_MODULE_LINES} lines"
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), f"{named(path)} has no module docstring"


@pytest.mark.parametrize("path", PRODUCT, ids=named)
def test_no_function_is_longer_than_a_screen(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{named(path)}: {node.name} has {length} lines"


def test_no_file_or_folder_is_a_drawer_for_odds_and_ends():
    drawers = [
        named(path)
        for path in FILES
        if DRAWERS & {part.split(".")[0] for part in path.relative_to(ROOT).parts}
    ]
    assert drawers == []


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix in TEXT], ids=named)
def test_no_file_knows_the_machine_it_was_written_on(path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        assert not MACHINE.search(line), f"{named(path)}:{number}: {line.strip()}"


@pytest.mark.parametrize("path", [path for path in MODULES if path not in PRODUCT], ids=named)
def test_no_test_is_skipped_without_a_reason(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Attribute) or node.attr not in ("skip", "xfail", "skipif"):
            continue
        calls = [call for call in ast.walk(ast.parse(path.read_text()))
                 if isinstance(call, ast.Call) and ast.dump(call.func) == ast.dump(node)]
        assert calls and all(call.keywords or call.args for call in calls), \
            f"{named(path)}:{node.lineno}: {node.attr} needs a reason"
