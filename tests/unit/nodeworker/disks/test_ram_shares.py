"""What the memory of machines is still to have of the disk."""
import os

import pytest

from nodeworker.disks.reserve_blocks import MIB
from nodeworker.hypervisor.qemu.disk.ram_shares import RamShares

SIZE_MB = 64


def make(folder, owner, written_mb=0, *, whole=False):
    """The RAM file of a machine."""
    (folder / owner).mkdir(parents=True)
    with (folder / owner / "ram").open("wb") as file:
        file.truncate(SIZE_MB * MIB)
        os.posix_fallocate(file.fileno(), 0, (SIZE_MB if whole else written_mb) * MIB or 1)


@pytest.fixture
def shares(tmp_path):
    """Of machines in two directories; `asleep` has no process."""
    make(tmp_path / "sandboxes", "fresh")
    make(tmp_path / "sandboxes", "grown", 40)
    make(tmp_path / "sandboxes", "whole", whole=True)
    make(tmp_path / "sandboxes", "asleep")
    make(tmp_path / "warm", "spare", 8)
    owners = ("fresh", "grown", "whole", "spare", "of a slot without a machine")
    return RamShares((tmp_path / "sandboxes", tmp_path / "warm"), lambda: owners, 0.25)


def test_what_is_unused_of_the_shares_is_kept_and_the_whole_need_none(shares):
    about = pytest.approx(16 + 8, abs=0.1)  # the fresh one's and half of the spare's
    assert shares.unused_bytes() / MIB == about
    assert shares.unused_bytes(besides="spare") / MIB == pytest.approx(16, abs=0.1)
    assert shares.whole_bytes() == SIZE_MB * MIB and shares.whole_bytes(besides="whole") == 0


def test_who_has_more_than_a_share_and_who_all(shares):
    found = {ram.owner: (ram.is_whole, ram.occupied > ram.share) for ram in shares.files()}
    assert found == {"fresh": (False, False), "grown": (False, True), "whole": (True, True),
                     "spare": (False, False)}


@pytest.mark.parametrize(("part", "share_mb", "all_is_whole"), [
    (0.25, 256, False), (1.0, 1024, True), (3.0, 1024, True), (0.0, 0, False)])
def test_a_share_is_at_most_all_of_it(part, share_mb, all_is_whole):
    shares = RamShares((), dict, part)
    assert shares.share_bytes(1024) == share_mb * MIB and shares.all_is_whole == all_is_whole
    assert shares.unused_bytes() == 0
