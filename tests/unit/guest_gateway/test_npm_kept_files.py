"""What the registry cache keeps on its disk."""
import os

import pytest

from app.guest_gateway.npm.kept_files import KeptFiles
from app.guest_gateway.npm.packages import find_wanted
from services.errors import Unavailable


def put(kept_files, path, content):
    wanted = find_wanted(path, "")
    with kept_files.draft() as draft:
        kept_files.write(draft, content)
        return wanted, kept_files.put(wanted, draft)


def test_a_file_is_found_whole_also_by_the_next_process(tmp_path):
    wanted, path = put(KeptFiles(tmp_path, 1000), "/a/-/a-1.tgz", b"content")
    assert path.read_bytes() == b"content"
    assert KeptFiles(tmp_path, 1000).find(wanted, 0) == path


def test_a_document_ages(tmp_path):
    kept_files = KeptFiles(tmp_path, 1000)
    assert kept_files.find(find_wanted("/a", ""), None) is None
    wanted, path = put(kept_files, "/a", b"{}")
    assert kept_files.find(wanted, 300) == path
    os.utime(path, (1, 1))
    assert kept_files.find(wanted, 300) is None
    assert kept_files.find(wanted, None) == path


def test_what_was_used_longest_ago_goes_first(tmp_path):
    kept_files = KeptFiles(tmp_path, 1000)
    kept = [put(kept_files, f"/a/-/a-{number}.tgz", bytes(300)) for number in range(3)]
    for number, (_, path) in enumerate(kept):
        os.utime(path, (number, number))
    assert kept_files.find(kept[0][0], None)
    new, _ = put(kept_files, "/b/-/b-1.tgz", bytes(300))
    found = [bool(kept_files.find(wanted, None)) for wanted, _ in [*kept, (new, None)]]
    assert found == [True, False, True, True]


def test_a_draft_that_came_to_nothing_is_gone(tmp_path):
    kept_files = KeptFiles(tmp_path, 1000)
    with pytest.raises(RuntimeError), kept_files.draft() as draft:
        draft.write(b"half")
        raise RuntimeError
    (tmp_path / "drafts" / "of a process that was killed").write_bytes(b"half")
    KeptFiles(tmp_path, 1000)
    assert list((tmp_path / "drafts").iterdir()) == []


def test_what_is_being_fetched_counts_and_makes_room_for_itself(tmp_path):
    kept_files = KeptFiles(tmp_path, 1000)
    kept, _ = put(kept_files, "/a/-/a-1.tgz", bytes(600))
    with kept_files.draft() as one, kept_files.draft() as other:
        kept_files.write(one, bytes(300))
        assert kept_files.find(kept, None)
        kept_files.write(other, bytes(300))
        assert not kept_files.find(kept, None)
        with pytest.raises(Unavailable, match="no room"):
            kept_files.write(other, bytes(600))
    put(kept_files, "/b/-/b-1.tgz", bytes(1000))


def test_a_file_has_its_content_on_the_disk_before_its_name(tmp_path, monkeypatch):
    """Else a host that dies leaves the name of a tarball without it."""
    flushed, flush = [], os.fsync

    def note(descriptor):
        flushed.append((os.fstat(descriptor).st_size, list(tmp_path.glob("??/*"))))
        flush(descriptor)

    monkeypatch.setattr("os.fsync", note)
    put(KeptFiles(tmp_path, 1000), "/a/-/a-1.tgz", b"content")
    assert flushed == [(7, [])]
