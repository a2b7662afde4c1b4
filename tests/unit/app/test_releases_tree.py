"""The directory of an edge: what nginx makes ETags of differs from version to version."""
import os

import pytest

from app.releases.tree import Tree


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def keep(tree, number, files, written_at):
    """Let files that were all written in one moment be version `number`."""
    with tree.draft("shop") as draft:
        for name, text in files.items():
            path = draft / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            os.utime(path, (written_at, written_at))
        tree.keep("shop", f"app_1-v{number}-7", draft)


def tags(root, number):
    """Name -> what nginx makes the ETag of: seconds and length."""
    version = root / "shop" / f"app_1-v{number}-7"
    return {str(path.relative_to(version)): (int(path.stat().st_mtime), path.stat().st_size)
            for path in version.rglob("*") if path.is_file()}


def test_pages_of_one_length_that_came_in_the_same_second_have_etags_of_their_own(tree, tmp_path):
    for number, text in enumerate(("aaa", "bbb", "ccc"), 9):
        keep(tree, number, {"index.html": text, "index.html.gz": "z", "sub/page.html": text}, 1e9)
    assert len({tags(tmp_path, number)["index.html"] for number in (9, 10, 11)}) == 3
    times = []
    for number in (9, 10, 11):
        (time,) = {time for time, _ in tags(tmp_path, number).values()}
        times.append(time)
    assert times == sorted(set(times)), "an older one never has the time of a newer"


def test_every_edge_makes_the_same_ones(tmp_path):
    for name, moment in (("one", 1e9), ("other", 1.5e9)):
        keep(Tree(tmp_path / name), 3, {"index.html": "x"}, moment)
    assert tags(tmp_path / "one", 3) == tags(tmp_path / "other", 3)


def test_a_draft_that_was_not_kept_leaves_nothing(tree, tmp_path):
    with pytest.raises(OSError, match="no more"):
        with tree.draft("shop") as draft:
            (draft / "half").write_text("of it")
            raise OSError("no more")
    assert list((tmp_path / "shop").iterdir()) == []
