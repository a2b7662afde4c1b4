"""How the image build behaves when its world is not as it should be."""
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from bin.stack.site import ROOT
from guest.image.bootstrap import bootstrap
from guest.image.distros import DISTROS
from guest.image.errors import ArchiveUnreachable, ImageError
from guest.image.filesystem import ROOTFS_BYTES
from tests.host.driver_lab import Lab

NOTHING_LISTENS_HERE = "http://127.0.0.1:9"


@pytest.mark.parametrize("distro", DISTROS.values(), ids=DISTROS)
def test_an_archive_that_cannot_be_reached_is_told_apart_from_other_failures(
        distro, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", NOTHING_LISTENS_HERE)
    monkeypatch.setenv("https_proxy", NOTHING_LISTENS_HERE)
    with pytest.raises(ArchiveUnreachable):
        bootstrap(distro, tmp_path / "rootfs", bun=tmp_path / "bun", token_file=tmp_path / "token",
                  dns=())


def test_the_build_says_what_to_do_and_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    environment = {
        **os.environ, "http_proxy": NOTHING_LISTENS_HERE, "https_proxy": NOTHING_LISTENS_HERE,
        "npm_config_proxy": NOTHING_LISTENS_HERE, "npm_config_https_proxy": NOTHING_LISTENS_HERE,
        "npm_config_fetch_retries": "0", "npm_config_cache": str(tmp_path / "cache")
    }
    done = subprocess.run(
        [ROOT / ".venv/bin/python", "-m", "guest.image.build", "--image-dir", tmp_path / "out"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("[image] ERROR: ") and "Traceback" not in done.stderr
    assert os.listdir(tmp_path / "out/images") == []


def test_building_again_changes_nothing_and_is_not_a_build(qemu_lab: Lab) -> None:
    images = qemu_lab.settings.image_dir / "images"
    before = [(path, os.lstat(path).st_mtime_ns) for path in sorted(images.rglob("*"))]
    done = subprocess.run([
        ROOT / ".venv/bin/python", "-m", "guest.image.build", "--image-dir",
        qemu_lab.settings.image_dir, "--dns", ",".join(qemu_lab.settings.guest_dns)
    ], cwd=ROOT, env={"PATH": "/nothing"}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [(path, os.lstat(path).st_mtime_ns) for path in sorted(images.rglob("*"))] == before


def test_the_image_is_complete_sparse_and_private(qemu_lab: Lab) -> None:
    current = qemu_lab.settings.image_dir / "images/current"
    facts = json.loads((current / "image.json").read_text())
    assert os.readlink(current) == facts["key"]
    assert (current / facts["kernel"]).stat().st_size > 1_000_000
    rootfs = (current / facts["rootfs"]).stat()
    assert rootfs.st_size == ROOTFS_BYTES and rootfs.st_blocks * 512 < 2 * 1024 ** 3
    assert stat.S_IMODE(current.stat().st_mode) == 0o700
    assert stat.S_IMODE((current / "image.json").stat().st_mode) == 0o600
    assert len(facts["agentToken"]) >= 32


def test_an_unknown_distribution_is_refused() -> None:
    done = subprocess.run(
        [ROOT / ".venv/bin/python", "-m", "guest.image.build", "--image-dir", "x", "--distro", "y"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "ubuntu-22.04" in done.stderr


def test_a_failed_step_is_an_image_error_with_its_last_words(tmp_path: Path) -> None:
    from guest.image.commands import run
    with pytest.raises(ImageError, match="last words"):
        run(["sh", "-c", "echo last words; exit 3"], timeout_s=20)
