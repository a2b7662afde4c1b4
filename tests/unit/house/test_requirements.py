"""What pip may install: wheels that requirements.txt names by their digests, and nothing else."""
import hashlib
import re
import subprocess
import zipfile

import pytest

from bin.bootstrap import fetch_command, install_command
from bin.stack.site import ROOT

PINS = ROOT / "requirements.txt"
ENTRY = re.compile(r"^([\w.-]+)==(\S+)(?: ; [^\\\n]+)?((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$",
                   re.MULTILINE)


def test_every_package_has_a_version_and_digests():
    text = PINS.read_text()
    left = [line for line in ENTRY.sub("", text).splitlines() if line and not line.startswith("#")]
    assert left == [] and len(ENTRY.findall(text)) > 50


def test_every_package_that_we_name_is_pinned():
    named = re.findall(r"^([\w-]+)", (ROOT / "requirements.in").read_text(), re.MULTILINE)
    assert set(named) <= {name for name, _, _ in ENTRY.findall(PINS.read_text())}


def test_both_commands_of_the_bootstrap_ask_for_digests():
    for command in (install_command(PINS, ROOT), fetch_command(PINS, ROOT)):
        assert "--require-hashes" in command and "--only-binary=:all:" in command


@pytest.fixture
def wheel(tmp_path):
    """A wheel of one module, and requirements that pin it."""
    path = tmp_path / "wheels" / "tiny-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA",
                         "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL",
                         "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    pins = tmp_path / "requirements.txt"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    pins.write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest}\n")
    return pins, path


def install(pins, path, target):
    command = [*install_command(pins, path.parent), "--target", str(target)]
    return subprocess.run(command, text=True, capture_output=True, check=False)


@pytest.mark.slow
def test_a_wheel_that_somebody_exchanged_is_refused(wheel, tmp_path):
    pins, path = wheel
    assert install(pins, path, tmp_path / "one").returncode == 0
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("extra.py", "")
    refused = install(pins, path, tmp_path / "two")
    assert refused.returncode == 1
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "two").exists()
