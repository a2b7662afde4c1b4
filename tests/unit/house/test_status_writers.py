"""Only the operation protocol writes the `status` of a sandbox; a new row has the one it begins
with."""
import ast
import re

import pytest

from bin.stack.site import ROOT

PROTOCOL = ROOT / "services" / "operations"
PACKAGES = ("app", "bin", "models", "nodeworker", "services", "tasks")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
         if PROTOCOL not in path.parents and "migrations" not in path.parts]
# Returns the columns of the idle clock, nothing else.
KNOWN_COLUMNS = "touch_values"
IN_SQL = re.compile(r"UPDATE\s+sandboxes\b[^;]*?\bSET\b(?:(?!\bWHERE\b|\bFROM\b)[^;])*?"
                    r"\bstatus\s*=", re.IGNORECASE)


def writes(text):
    """What in a module writes, or may write, the status of a row of a sandbox."""
    tree = ast.parse(text)
    found = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)
             and isinstance(node.value, str) and IN_SQL.search(node.value)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Sandbox.update":
            found += [ast.unparse(node) for each in node.keywords
                      if each.arg == "status" or each.arg is None and not _is_known(each.value)]
            found += [ast.unparse(node)] * bool(node.args)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "setattr", "Sandbox.insert", "Sandbox.bulk_update"):
            found += [ast.unparse(node)] * ("Sandbox" in ast.unparse(node)
                                            or "status" in ast.unparse(node))
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [ast.unparse(node) for each in targets
                      if isinstance(each, ast.Attribute) and each.attr == "status"
                      and "models.sandboxes" in text]
    return found


def _is_known(value):
    return isinstance(value, ast.Call) and ast.unparse(value.func) == KNOWN_COLUMNS


def test_nothing_else_writes_it():
    assert len(FILES) > 200
    assert {str(path.relative_to(ROOT)): found for path in FILES
            if (found := writes(path.read_text()))} == {}


@pytest.mark.parametrize("text", [
    "Sandbox.update(status=RUNNING).execute()",
    "Sandbox.update(**columns).execute()",
    "Sandbox.update({Sandbox.status: RUNNING}).execute()",
    "from models.sandboxes import Sandbox\nrow.status = RUNNING",
    "Q = 'UPDATE sandboxes SET vm_ip = %s, status = %s WHERE id = %s'",
    "setattr(row, 'status', RUNNING)",
])
def test_each_way_to_write_it_is_seen(text):
    assert writes(text)


@pytest.mark.parametrize("text", [
    "Sandbox.update(env={}).execute()",
    "Sandbox.update(idle_timeout_s=3, **touch_values(3)).execute()",
    "Q = \"UPDATE sandboxes SET vm_ip = '' WHERE status = 'running'\"",
    "answer.status = 200",
])
def test_what_writes_something_else_is_not(text):
    assert writes(text) == []
