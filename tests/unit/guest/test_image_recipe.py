"""The parts of the image recipe that need no root: commands, keys, the archive of Bun, the initrd's
list of modules and its archive format."""
import base64
import dataclasses
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from bin.stack.guest_image import build_command
from config.settings import load
from guest.image import bun
from guest.image.bootstrap import mmdebstrap_argv
from guest.image.build import DEFAULT_DNS
from guest.image.distros import DEBIAN, DISTROS, FALLBACK, UBUNTU
from guest.image.errors import ImageError
from guest.image.initrd import init_script, loadable, module_files, newc_entry
from guest.image.recipe import image_key, recipe_files
from tests.fakes.npm_registry import NpmRegistry

CONTRACT_PACKAGES = {"git", "curl", "wget", "unzip", "python3", "openssh-server", "sudo"}


def test_the_settings_of_the_image_reach_its_build():
    settings = load({"SVC_IMAGE_DIR": "/images", "SVC_GUEST_DISTRO": "debian-12",
                     "SVC_GUEST_DNS": "9.9.9.9,149.112.112.112"})
    assert build_command(settings) == (
        "python -m guest.image.build --image-dir=/images --distro=debian-12"
        " --dns=9.9.9.9,149.112.112.112")
    assert f"--dns={','.join(DEFAULT_DNS)}" in build_command(load({}))


@pytest.mark.parametrize("distro", DISTROS.values(), ids=DISTROS)
def test_every_base_has_what_the_contract_lists(distro) -> None:
    assert CONTRACT_PACKAGES <= set(distro.packages)
    assert " rw " in distro.cmdline, "without it the root stays read-only"


def test_the_archive_is_the_distributions_own_default_checked_with_our_key(tmp_path: Path) -> None:
    argv = mmdebstrap_argv(UBUNTU, tmp_path)
    assert argv[-2:] == ["jammy", str(tmp_path)]
    assert f"--keyring={UBUNTU.keyring}" in argv and UBUNTU.keyring and UBUNTU.keyring.exists()
    assert "--components=main,universe" in argv
    assert not any("://" in argument for argument in argv)


@pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg")
def test_the_committed_key_is_ubuntus(tmp_path: Path) -> None:
    shown = subprocess.run(
        ["gpg", "--homedir", tmp_path, "--with-colons", "--show-keys",
         str(UBUNTU.keyring)], capture_output=True, text=True, check=True, timeout=30).stdout
    fingerprints = [line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr:")]
    assert fingerprints == ["F6ECB3762474EDA9D21B7022871920D1991BC93C"]


def test_the_fallback_is_another_base() -> None:
    assert FALLBACK == {UBUNTU.name: DEBIAN}


def test_the_key_names_the_base_and_changes_with_the_name_servers() -> None:
    one, two = image_key(UBUNTU, ("1.1.1.1",)), image_key(UBUNTU, ("9.9.9.9",))
    assert one.startswith("ubuntu-22.04-") and one != two
    assert one == image_key(dataclasses.replace(UBUNTU), ("1.1.1.1",))


def test_the_key_covers_recipe_and_agent_and_no_leftovers() -> None:
    names = {path.name for path in recipe_files()}
    assert {
        "customize.sh", "distros.py", "svc-agent.service", "execution.py",
        "ubuntu-archive-2018.asc", "callback.py", "svc-callback"
    } <= names
    assert not any(path.suffix == ".pyc" for path in recipe_files())


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The archive that a registry of its own gives out as our Bun, on a machine without npm."""
    registry = NpmRegistry()
    registry.publish(bun.BUN_PACKAGE, bun.BUN_VERSION, {"bin/bun": "a program"})
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry.url)
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    yield next(iter(registry.tarballs.values()))
    registry.close()


def test_bun_is_unpacked_if_it_is_the_archive_that_we_name(archive, tmp_path, monkeypatch) -> None:
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    monkeypatch.setattr(bun, "BUN_SHA512", digest)
    binary = bun.fetch_bun(tmp_path / "work")
    assert binary.read_text() == "a program" and binary.stat().st_mode & 0o777 == 0o755


def test_a_forged_archive_of_bun_is_refused(archive, tmp_path) -> None:
    with pytest.raises(ImageError, match="is another archive than the one that guest/image/bun.py"):
        bun.fetch_bun(tmp_path / "work")
    assert not (tmp_path / "work/bun").exists()


DEPENDENCIES = """kernel/fs/ext4/ext4.ko: kernel/lib/crc16.ko kernel/fs/jbd2/jbd2.ko
kernel/lib/crc16.ko:
kernel/fs/jbd2/jbd2.ko:
kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/net/virtio-net.ko.xz:
"""


def test_modules_come_with_what_they_need_once_each() -> None:
    assert module_files(DEPENDENCIES, ("virtio_pci", "ext4", "virtio_net")) == [
        "kernel/drivers/virtio/virtio_pci.ko",
        "kernel/drivers/virtio/virtio.ko",
        "kernel/fs/ext4/ext4.ko",
        "kernel/lib/crc16.ko",
        "kernel/fs/jbd2/jbd2.ko",
        "kernel/net/virtio-net.ko.xz",
    ]


def test_what_is_in_the_kernel_itself_is_not_loaded() -> None:
    builtin = "kernel/fs/ext4/ext4.ko\nkernel/net/virtio-net.ko"
    assert loadable(builtin, ("ext4", "virtio_pci", "virtio_net")) == ("virtio_pci",)


def test_a_module_the_kernel_lacks_is_an_error_that_names_it() -> None:
    with pytest.raises(ImageError, match="btrfs"):
        module_files(DEPENDENCIES, ("btrfs",))


def test_the_script_loads_the_modules_in_the_order_given() -> None:
    script = init_script(("virtio_pci", "ext4"))
    assert script.index("modprobe virtio_pci") < script.index("modprobe ext4") < script.index(
        "switch_root")


@pytest.mark.skipif(not shutil.which("cpio"), reason="needs cpio")
def test_the_archive_is_one_that_cpio_unpacks(tmp_path: Path) -> None:
    archive = (newc_entry("dir", 0o40755, b"", 1) + newc_entry("dir/odd", 0o100640, b"12345", 2)
               + newc_entry("link", 0o120777, b"dir/odd", 3) + newc_entry("TRAILER!!!", 0, b"", 0))
    subprocess.run(["cpio", "-i", "--quiet"], input=archive, cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "link").read_bytes() == b"12345"
    assert (tmp_path / "dir/odd").stat().st_mode & 0o777 == 0o640
