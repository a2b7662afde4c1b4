"""House rules that no linter knows: sizes of modules and functions, names of files, what must not
be committed."""
import ast
import functools
import gc
import re
import subprocess
from collections import Counter

from bin.stack.site import ROOT

MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 50
MAX_FOLDER_FILES = 16
MAX_WIDTH = 100
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "shared", "base"}
# Folders that hold one file for each step or for each file of a guest, whatever their number.
UNCOUNTED = ("models/migrations", "guest/image/overlay")
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
    ".json", ".ts", ".js", ".mjs", ".css", ".html", ".svg", ""
}
# What people read and write line by line. Each command of the Procfile is one line; what goes into
# the guest image is part of the name of every image made from it.
NARROW = {
    ".py", ".md", ".toml", ".cfg", ".in", ".yml", ".yaml", ".ts", ".js", ".mjs", ""
}
ONE_LINE_EACH = {"Procfile"}


def tracked_files():
    """Every file that is committed or about to be."""
    listing = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                             cwd=ROOT, text=True, capture_output=True, check=True)
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


FILES = tracked_files()
MODULES = [path for path in FILES if path.suffix == ".py"]
SCRIPTS = [path for path in FILES if path.suffix in (".ts", ".js", ".mjs")]
PRODUCT = [path for path in MODULES if path.relative_to(ROOT).parts[0] != "tests"]


@functools.cache
def tree_of(path):
    """Parsed when it is asked for: every process of a parallel run imports this file.

    What the collector runs in the middle of that may let another thread parse something, of which
    CPython 3.11 says `AST constructor recursion depth mismatch` (its issue 106905)."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def named(path):
    return str(path.relative_to(ROOT))


def test_a_module_stays_short():
    longer = [
        named(path)
        for path in (*MODULES, *SCRIPTS)
        if len(path.read_text().splitlines()) > MAX_MODULE_LINES
    ]
    assert longer == []


def test_a_module_says_what_it_is_for():
    silent = [named(path) for path in MODULES
              if tree_of(path).body and not ast.get_docstring(tree_of(path))]
    silent += [named(path) for path in SCRIPTS
               if not re.match(r"(#!.*\n)?// [A-Z]", path.read_text())]
    assert silent == []


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{named(path)}: {node.name}"
        for path in PRODUCT
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_a_folder_of_code_has_few_enough_files_to_be_one_subject():
    folders = Counter(named(path.parent) for path in (*MODULES, *SCRIPTS)
                      if path.name != "__init__.py")
    full = {name: files for name, files in folders.items()
            if files > MAX_FOLDER_FILES and not name.startswith(UNCOUNTED)}
    assert full == {}


def wide_lines(path):
    """Lines over the width that are no table, no list of sections and hold no address, which cannot
    be broken; nor examples on a page, which show what a terminal shows."""
    example = False
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        example ^= path.suffix == ".md" and line.startswith("```")
        if len(line) > MAX_WIDTH and not example and not re.match(r"[|\[]|.*://", line):
            yield f"{named(path)}:{number}"


def test_no_line_is_wider_than_a_window():
    narrow = [
        path
        for path in FILES
        if path.suffix in NARROW and not named(path).startswith(UNCOUNTED)
        and path.name not in ONE_LINE_EACH
    ]
    assert [line for path in narrow for line in wide_lines(path)] == []


def test_no_file_or_folder_is_a_drawer_for_odds_and_ends():
    drawers = [
        named(path)
        for path in FILES
        if DRAWERS & {part.split(".")[0] for part in path.relative_to(ROOT).parts}
    ]
    assert drawers == []


def test_no_file_knows_the_machine_it_was_written_on():
    known = [
        f"{named(path)}:{number}: {line.strip()}"
        for path in FILES
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE.search(line)
    ]
    assert known == []


def skips_without_a_reason(tree):
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in ("skip", "xfail", "skipif"):
            continue
        calls = [call for call in ast.walk(tree)
                 if isinstance(call, ast.Call) and ast.dump(call.func) == ast.dump(node)]
        if not calls or not all(call.keywords or call.args for call in calls):
            yield node.lineno


def test_no_test_is_skipped_without_a_reason():
    silent = [
        f"{named(path)}:{line}"
        for path in MODULES
        if path not in PRODUCT
        for line in skips_without_a_reason(tree_of(path))
    ]
    assert silent == []
