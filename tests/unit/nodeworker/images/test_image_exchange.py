"""A guest image becomes one of another host's by its exported files: wholly, as that very build, or
not at all."""
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.disk.qemu_img import QemuImg
from nodeworker.hypervisor.qemu.images import prune
from nodeworker.hypervisor.qemu.images.guest_image import current_image, load_image
from nodeworker.hypervisor.qemu.images.images_between_hosts import exported_files, image_of_build
from tests.host.disk_node import make_image

QEMU_IMG = QemuImg(20_000_000)
CONTENT = b"root disk " * 1000


@pytest.fixture
def exported(tmp_path):
    """An image of another host, and its exported files by name."""
    make_image(tmp_path / "there", "base")
    image = current_image(tmp_path / "there")
    with image.rootfs.open("r+b") as rootfs:
        rootfs.seek(64 * 1024)
        rootfs.write(CONTENT)
    image.kernel.write_bytes(b"kernel")
    return image, exported_files(QEMU_IMG, image)


@pytest.fixture
def here(tmp_path):
    """The image directory of this host, with a build of its own of the same recipe."""
    make_image(tmp_path / "here", "base")
    describe(tmp_path / "here" / "images" / "base", agentToken="another")
    return tmp_path / "here"


def describe(directory, **changes):
    path = directory / "image.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def images(image_dir):
    return {path.name for path in (image_dir / "images").iterdir()}


def import_to(image_dir, exported, fetch=None):
    image, files = exported
    with image_of_build(image_dir, QEMU_IMG, image.build_key, fetch or copier(files)) as found:
        return found


def copier(files, **others):
    def fetch(name, target):
        assert not target.exists()
        if name in others:
            target.write_bytes(others[name])
        else:
            shutil.copy(files[name], target)
    return fetch


def test_it_has_the_bytes_of_the_other_host_and_is_known_by_its_build(exported, here):
    image, files = exported
    assert list(files)[-1] == "image.json", "stored last, it says that all are there"
    found = import_to(here, exported)
    assert images(here) == {"base", "current", image.build_key}
    assert found.rootfs.read_bytes() == image.rootfs.read_bytes()
    assert found.kernel.read_bytes() == b"kernel" and found.initrd is None
    assert (found.key, found.agent_token) == (image.build_key, image.agent_token)
    assert found == load_image(here / "images" / image.build_key)
    assert found.directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in found.directory.iterdir()} == {0o600}
    assert {path.stat().st_uid for path in found.directory.iterdir()} == {os.getuid()}
    assert current_image(here).agent_token == "another"
    again = exported_files(QEMU_IMG, found)
    assert found.build_key == image.build_key and again.keys() == files.keys()


def test_a_compressed_root_disk_has_its_name_only_once_it_is_flushed(exported, monkeypatch):
    """After a loss of power half of one would have been exported, for as long as the image is
    here."""
    image, files = exported
    compressed, flush, flushed = files["rootfs.qcow2"], os.fsync, set()
    compressed.unlink()

    def note(descriptor):
        assert not compressed.exists()
        flush(descriptor)
        flushed.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr("os.fsync", note)
    assert exported_files(QEMU_IMG, image)["rootfs.qcow2"] == compressed
    assert compressed.stat().st_ino in flushed


class Dying(QemuImg):
    """Its worker is killed while it compresses."""

    def run(self, *arguments, also=()):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("is_done", [False, True])
def test_what_killed_workers_left_of_a_compression_goes_with_the_next(exported, is_done):
    """Each was as large as the image."""
    image, files = exported
    content = files["rootfs.qcow2"].read_bytes()
    files["rootfs.qcow2"].unlink()
    there = set(os.listdir(image.directory))
    killed_in(lambda: exported_files(Dying(20_000_000), image))
    (image.directory / "rootfs.4711.copy").touch()  # an earlier release's
    assert len(set(os.listdir(image.directory)) - there) > 2
    if is_done:
        files["rootfs.qcow2"].write_bytes(content)
    assert exported_files(QEMU_IMG, image) == files
    assert set(os.listdir(image.directory)) - there == {"rootfs.qcow2"}


def killed_in(work):
    """Have a worker of its own begin with it, and be killed there."""
    worker = os.fork()
    if not worker:
        work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == -signal.SIGKILL


def test_one_that_is_here_is_not_fetched(exported, here):
    import_to(here, exported)
    for image_dir in (here, exported[0].directory.parents[1]):
        assert import_to(image_dir, exported, fetch=pytest.fail).build_key == exported[0].build_key


@pytest.mark.parametrize("name", ["image.json", "vmlinuz", "rootfs.qcow2"])
def test_after_a_failure_nothing_of_it_is_here(exported, here, name):
    def fetch(wanted, target):
        target.write_bytes(b"")
        if wanted == name:
            raise OSError("gone")
        copier(exported[1])(wanted, target.with_name("whole"))
        target.with_name("whole").rename(target)

    with pytest.raises(OSError, match="gone"):
        import_to(here, exported, fetch)
    assert images(here) == {"base", "current"}
    import_to(here, exported)


@pytest.mark.parametrize("changes", [
    {"agentToken": "of yet another"}, {"key": "other"}, {"kernel": "../base/image.json"},
    {"kernel": "/etc/hostname"}, {"initrd": "image.json"}, {"rootfs": "rootfs.qcow2"},
    {"rootfs": ".."}])
def test_what_says_it_is_something_else_or_lies_elsewhere_is_refused(exported, here, changes):
    described = {**json.loads(exported[1]["image.json"].read_text()), **changes}
    fetch = copier(exported[1], **{"image.json": json.dumps(described).encode()})
    before = (here / "images" / "base" / "image.json").read_bytes()
    with pytest.raises(DriverError, match="guest image"):
        import_to(here, exported, fetch)
    assert images(here) == {"base", "current"}
    assert (here / "images" / "base" / "image.json").read_bytes() == before


@pytest.mark.parametrize("key", ["../base", "", "..", "base/..", "Base"])
def test_a_key_is_no_path(exported, here, key):
    with pytest.raises(DriverError, match="no key"), image_of_build(here, QEMU_IMG, key,
                                                                    pytest.fail):
        pass
    assert images(here) == {"base", "current"}


def test_what_a_dead_import_left_is_in_nobodys_way(exported, here, tmp_path, monkeypatch):
    (tmp_path / "fault").write_text("fetch.image_written kill")
    monkeypatch.setenv("SVC_FAULT_FILE", str(tmp_path / "fault"))
    killed_in(lambda: import_to(here, exported))
    left = here / "images" / f".fetching-{exported[0].build_key}"
    assert (left / "rootfs.raw").exists() and exported[0].build_key not in images(here)
    assert import_to(here, exported).directory.name == exported[0].build_key
    assert not left.exists()


def test_it_is_not_removed_before_its_copy_has_a_record(exported, here):
    image, files = exported
    with image_of_build(here, QEMU_IMG, image.build_key, copier(files)):
        with pytest.raises(DriverError, match="being built or fetched"):
            prune.prune(here)
        assert image.build_key in images(here)
    assert {unneeded.path for unneeded in prune.prune(here)} == {
        Path(here / "images" / image.build_key)}


def test_whoever_has_an_image_holds_up_nobody_elses_import(exported, here, tmp_path):
    make_image(tmp_path / "third", "base")
    describe(tmp_path / "third" / "images" / "base", agentToken="third")
    third = current_image(tmp_path / "third")
    third.kernel.write_bytes(b"kernel")
    image, files = exported
    with image_of_build(here, QEMU_IMG, image.build_key, copier(files)):
        import_to(here, (third, exported_files(QEMU_IMG, third)))
    assert {image.build_key, third.build_key} <= images(here)
