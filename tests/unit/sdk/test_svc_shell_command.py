"""What `bin/svc-shell` takes from the checkout's stack, and what from whoever calls it; what
it says of a mistake."""
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


def test_a_checkout_without_packages_has_no_shell(checkout):
    (checkout / ".venv/bin/python").unlink()
    asked = subprocess.run([checkout / "bin/svc-shell", "sbx_1"], env={"PATH": "/usr/bin:/bin"},
                           text=True, capture_output=True, check=False)
    assert asked.returncode == 255 and "make packages" in asked.stderr


@pytest.mark.parametrize(("words", "content", "said"), [
    (["sbx_1", "--key-file", "none"], b"", "none cannot be read: No such file or directory"),
    (["sbx_1", "--key-file", "key"], b"\xff\xfe", "key cannot be read: it is no text"),
    (["sbx_1", "--key-file", "key", "--url", "wss://h:abc"], b"key",
     "wss://h:abc cannot be asked: Port"),
    (["sbx_\udcff", "--key-file", "key", "--url", "wss://h:abc"], b"key", "cannot be asked: Port"),
    (["sbx_1", "sbx_2"], b"", "unrecognized arguments: sbx_2"),
    (["sbx_1", "--ley-file=\udcff"], b"", "unrecognized arguments: --ley-file=\\udcff"),
], ids=["no file", "no text", "no port", "no UTF-8", "two sandboxes", "no such option"])
def test_a_mistake_is_one_sentence(tmp_path, words, content, said):
    (tmp_path / "key").write_bytes(content)
    asked = subprocess.run([ROOT / ".venv/bin/python", "-m", "sdk.shell", *words],
                           cwd=tmp_path, text=True, capture_output=True, check=False,
                           env={"PYTHONPATH": str(ROOT), "SVC_SHELL_URL": "wss://h"})
    assert asked.returncode == 255 and asked.stderr.startswith("svc-shell: ")
    assert said in asked.stderr and asked.stderr.count("\n") == 1
