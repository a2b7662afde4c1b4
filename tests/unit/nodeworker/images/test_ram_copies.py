"""Copies of a template's memory made ahead: taken once each, never half-made, gone with their
template and with the run of the host that they were made in."""
import threading

import pytest

from nodeworker.hypervisor.qemu.images import ram_copies
from nodeworker.hypervisor.qemu.images.ram_copies import SparePool

CONTENT = b"memory" * 1000


@pytest.fixture
def template(tmp_path):
    folder = tmp_path / "templates" / "small"
    folder.mkdir(parents=True)
    (folder / "ram").write_bytes(CONTENT)
    return folder


@pytest.fixture
def pool(tmp_path, monkeypatch):
    monkeypatch.setattr(ram_copies, "_CALM_S", 0)
    return SparePool(tmp_path / "spares", target=2)


def refill(pool, template):
    pool.refill_in_background(template)
    for thread in threading.enumerate():
        if thread.name == "spares":
            thread.join(10)


def test_without_spares_a_create_is_told_to_copy(pool, template, tmp_path):
    assert not pool.take(template, tmp_path / "ram")
    assert not (tmp_path / "ram").exists()


def test_every_spare_is_whole_private_and_taken_once(pool, template, tmp_path):
    refill(pool, template)
    for name in ("one", "two"):
        assert pool.take(template, tmp_path / name)
        assert (tmp_path / name).read_bytes() == CONTENT
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert not pool.take(template, tmp_path / "three")


def test_a_half_made_spare_is_never_taken_and_goes_with_the_next_reclaim(pool, template, tmp_path):
    folder = tmp_path / "spares" / "small"
    folder.mkdir()
    (folder / "abc.half").write_bytes(b"mem")
    assert not pool.take(template, tmp_path / "ram")
    refill(pool, template)
    pool.reclaim({"small"})
    assert not (folder / "abc.half").exists()
    assert pool.take(template, tmp_path / "ram")


def test_spares_of_a_template_that_is_gone_are_removed(pool, template, tmp_path):
    refill(pool, template)
    pool.reclaim({"another"})
    assert not (tmp_path / "spares" / "small").exists()


def test_a_template_that_cannot_be_copied_leaves_nothing_behind(pool, template, tmp_path):
    (template / "ram").unlink()
    refill(pool, template)
    assert not pool.take(template, tmp_path / "ram")
    assert list((tmp_path / "spares" / "small").iterdir()) == []


def test_copies_of_before_a_power_failure_are_not_taken_and_go_with_the_next_reclaim(
        pool, template, tmp_path, monkeypatch):
    """They were not flushed: such a file had its full size and holes in place of memory."""
    folder = tmp_path / "spares" / "small"
    refill(pool, template)
    before = set(folder.iterdir())
    (folder / "0123456789abcdef").write_bytes(CONTENT)  # as older versions named them
    monkeypatch.setattr(ram_copies, "boot_id", lambda: "the next boot")
    assert not pool.take(template, tmp_path / "ram")
    refill(pool, template)
    pool.reclaim({"small"})
    made = set(folder.iterdir())
    assert len(before) == len(made) == 2 and not before & made
    assert pool.take(template, tmp_path / "ram")
