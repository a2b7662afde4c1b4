"""The directory of an edge: what nginx makes ETags of differs from version to version."""
import os
import time

import pytest

from app.releases.tree import Tree
from models.ids import new_id


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def keep(tree, number, files, written_at, app_id="app_1"):
    """Let files that were all written in one moment be version `number`."""
    with tree.draft() as draft:
        for name, text in files.items():
            path = draft / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            os.utime(path, (written_at, written_at))
        tree.keep("shop", f"{app_id}-v{number}-7", draft)


def tags(root, number, app_id="app_1"):
    """Name -> what nginx makes the ETag of: seconds and length."""
    version = root / "shop" / f"{app_id}-v{number}-7"
    return {str(path.relative_to(version)): (int(path.stat().st_mtime), path.stat().st_size)
            for path in version.rglob("*") if path.is_file()}


def test_pages_of_one_length_that_came_in_the_same_second_have_etags_of_their_own(tree, tmp_path):
    for number, text in enumerate(("aaa", "bbb", "ccc"), 9):
        keep(tree, number, {"index.html": text, "index.html.gz": "z", "sub/page.html": text}, 1e9)
    assert len({tags(tmp_path, number)["index.html"] for number in (9, 10, 11)}) == 3
    times = []
    for number in (9, 10, 11):
        (moment,) = {moment for moment, _ in tags(tmp_path, number).values()}
        times.append(moment)
    assert times == sorted(set(times)), "an older one never has the time of a newer"


def test_so_have_those_of_the_app_that_had_the_address_before(tree, tmp_path):
    apps = [new_id("app_") for _ in range(20)]
    for app_id in apps:
        keep(tree, 1, {"index.html": "aaa"}, 1e9, app_id)
    found = {tags(tmp_path, 1, app_id)["index.html"] for app_id in apps}
    assert len(found) == len(apps)
    assert max(moment for moment, _ in found) < time.time(), "no browser is told of a time to come"


def test_every_edge_makes_the_same_ones(tmp_path):
    for name, moment in (("one", 1e9), ("other", 1.5e9)):
        keep(Tree(tmp_path / name), 3, {"index.html": "x"}, moment)
    assert tags(tmp_path / "one", 3) == tags(tmp_path / "other", 3)


def test_a_draft_that_was_not_kept_leaves_nothing(tree, tmp_path):
    with pytest.raises(OSError, match="no more"):
        with tree.draft() as draft:
            (draft / "half").write_text("of it")
            raise OSError("no more")
    assert list((tmp_path / ".drafts").iterdir()) == []


@pytest.mark.parametrize("place", [".drafts", "shop"], ids=["now", "before an upgrade"])
def test_the_draft_of_a_fetch_that_was_killed_is_cleared(tmp_path, place):
    (tmp_path / place / ".draft-1" / "half").mkdir(parents=True)
    tree = Tree(tmp_path)
    tree.clear()
    assert not list((tmp_path / place).iterdir()) and not list((tmp_path / ".gone").iterdir())


def test_what_is_withdrawn_is_gone_at_once_and_its_files_later(tree, tmp_path):
    keep(tree, 1, {"index.html": "x"}, 1e9)
    tree.point("shop", "app_1-v1-7", None)
    tree.withdraw("shop")
    assert tree.apps() == [] and len(list((tmp_path / ".gone").rglob("index.html"))) == 1
    tree.clear()
    assert not list((tmp_path / ".gone").iterdir())
