"""What is removed with a stack, and what in its directory is of others."""
from pathlib import Path

import pytest

from bin import down
from bin.stack import leftovers


@pytest.fixture
def data_dir(tmp_path):
    made = tmp_path / "var"
    for name in ("images", "postgres", "test-sim-1", "bench-2"):
        (made / name).mkdir(parents=True)
        (made / name / "file").write_text("of it")
    (made / "stack.log").write_text("")
    return made


def names(data_dir):
    return sorted(entry.name for entry in data_dir.iterdir())


def test_what_is_kept_and_private_stacks_stay(data_dir):
    leftovers.remove_entries(data_dir, {"images"})
    assert names(data_dir) == ["bench-2", "images", "test-sim-1"]


def test_what_says_that_there_is_something_goes_last(data_dir, monkeypatch):
    for name in ("owner", "stack.env", "zones"):
        (data_dir / name).write_text("")
    gone, unlink = [], Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **_: (gone.append(path.name), unlink(path)))
    leftovers.remove_entries(data_dir)
    assert gone[-2:] == ["stack.env", "owner"] and len(gone) == 4


def test_an_empty_directory_goes_and_none_is_no_error(tmp_path):
    (tmp_path / "var").mkdir()
    for _ in range(2):
        leftovers.remove_entries(tmp_path / "var")
        assert not (tmp_path / "var").exists()


def test_clean_all_without_a_stack_leaves_those_of_others(data_dir, monkeypatch):
    monkeypatch.setattr(down, "DEVELOPMENT", data_dir)
    monkeypatch.setattr(down, "remove_abandoned", lambda: [])
    down.main(["clean-all"])
    assert names(data_dir) == ["bench-2", "test-sim-1"]
