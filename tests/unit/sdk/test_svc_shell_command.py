"""What `bin/svc-shell` takes from the checkout's stack, and what from whoever calls it."""
import shutil
import subprocess

import pytest

from bin.stack.site import ROOT

STACK = {"SVC_API_KEY": "key of alice", "SVC_SHELL_URL": "wss://here", "SVC_CA_FILE": "/ca.pem"}
GIVEN = {"SVC_API_KEY": "given", "SVC_SHELL_URL": "wss://elsewhere"}


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a stack, whose Python prints the settings that it is told."""
    for name in ("bin", ".venv/bin", "var"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "bin/svc-shell", tmp_path / "bin")
    python = tmp_path / ".venv/bin/python"
    python.write_text("#!/bin/sh\nenv | grep ^SVC_\n")
    python.chmod(0o755)
    (tmp_path / "var/dev.env").write_text("".join(f"{k}='{v}'\n" for k, v in STACK.items()))
    return tmp_path


@pytest.mark.parametrize(("given", "told"), [
    ({}, STACK),
    ({"SVC_API_KEY": "given"}, STACK | {"SVC_API_KEY": "given"}),
    ({"SVC_SHELL_URL": "wss://elsewhere"}, {"SVC_SHELL_URL": "wss://elsewhere"}),
    (GIVEN, GIVEN),
], ids=lambda value: ",".join(value) or "nothing")
def test_the_key_of_the_stack_goes_to_the_stack_only(checkout, given, told):
    shown = subprocess.run([checkout / "bin/svc-shell", "sbx_1"], env={"PATH": "/usr/bin:/bin"}
                           | given, text=True, capture_output=True, check=True).stdout
    assert dict(line.split("=", 1) for line in shown.splitlines()) == told
