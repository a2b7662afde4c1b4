"""Imports point one way, as the import-linter contracts of setup.cfg say; the guest agent needs
nothing but Python."""
import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bin.stack.site import ROOT
from guest.agent.protocol import AGENT_PORT
from services.deploys.apps.process_facts import APP_PORT, LOG

ROOMS = ("app", "bench", "bin", "config", "guest", "models", "nodeworker", "objects", "sdk",
         "services", "tasks")
AGENT = sorted(
    path for room in ("agent", "agentserver") for path in (ROOT / "guest" / room).rglob("*.py"))


def test_every_import_contract_of_setup_cfg_is_kept():
    linter = Path(sys.executable).parent / "lint-imports"
    result = subprocess.run([linter, "--config", "setup.cfg", "--no-cache"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", AGENT, ids=lambda path: path.name)
def test_the_guest_agent_uses_the_standard_library_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
            [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names or name.startswith(
                "guest.agent"
            ), f"{path.name} imports {name}, which a guest does not have"


@pytest.mark.parametrize(("value", "word", "home"), [
    (AGENT_PORT, "PORT", "guest/agent/protocol.py"),
    (APP_PORT, "PORT", "services/deploys/apps/process_facts.py"),
    (LOG, "", "services/deploys/apps/process_facts.py"),
])
def test_it_has_one_constant(value, word, home):
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        and node.value.value == value and word in ast.unparse(node.targets[0])
    ]
    assert [place.split(":")[0] for place in found] == [home], found
