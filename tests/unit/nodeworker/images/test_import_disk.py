"""A disk that another host has exported is not taken where there is no room for all of it."""
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeworker.hypervisor.driver import NoDiskSpace
from tests.host.disk_node import BLOCK, BLOCKS, SHAPE, Node, leave


@dataclass
class Exported:
    """An exported disk on an image that is here."""

    disk: Path
    disk_bytes: int
    was_asked: bool = False

    def write_disk(self, target):
        self.was_asked = True
        shutil.copy(self.disk, target)

    write_image_file = pytest.fail


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.fixture
def exported(node, tmp_path):
    """A disk that has been compressed well, and the key of its image."""
    box = node.create()
    for block in range(BLOCKS):
        node.write(box, block, 1)
    taken = node.snapshot(box)
    export = node.driver.export_disk(taken, tmp_path / "disk")
    size_bytes = (tmp_path / "disk").stat().st_size
    return Exported(tmp_path / "disk", size_bytes), export.image_key


def test_neither_its_file_nor_what_is_in_it_goes_below_the_floor(node, exported, monkeypatch):
    files, image_key = exported
    assert files.disk_bytes < BLOCKS * BLOCK / 2
    for free_bytes, is_fetched in ((files.disk_bytes - 1, False), (BLOCKS * BLOCK - 1, True)):
        leave(node, monkeypatch, free_bytes)
        with pytest.raises(NoDiskSpace):
            node.driver.import_disk("there", SHAPE, image_key, files)
        assert files.was_asked is is_fetched
        assert not any(node.host.snapshots.glob("there*"))
    leave(node, monkeypatch, 2 * BLOCKS * BLOCK)
    node.driver.import_disk("there", SHAPE, image_key, files)
    node.snapshots["there"] = dict.fromkeys(range(BLOCKS), 1)
    node.check_content("snapshots", "there")
