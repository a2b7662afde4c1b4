"""What the registry cache keeps on its disk."""
import os
import threading
import time
from contextlib import contextmanager

import pytest

from app.guest_gateway.npm.kept_files import KeptFiles
from app.guest_gateway.npm.packages import find_wanted
from services.errors import Unavailable


@contextmanager
def drafted(kept_files):
    draft = kept_files.draft()
    try:
        yield draft
    finally:
        kept_files.drop(draft)


@contextmanager
def meanwhile(call, *arguments):
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    yield
    thread.join()


def put(kept_files, path, content):
    wanted = find_wanted(path, "")
    with drafted(kept_files) as draft:
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
    with pytest.raises(RuntimeError), drafted(kept_files) as draft:
        draft.write(b"half")
        raise RuntimeError
    (tmp_path / "drafts" / "of a process that was killed").write_bytes(b"half")
    KeptFiles(tmp_path, 1000)
    assert list((tmp_path / "drafts").iterdir()) == []


def test_what_is_being_fetched_counts_and_makes_room_for_itself(tmp_path):
    kept_files = KeptFiles(tmp_path, 1000)
    kept, _ = put(kept_files, "/a/-/a-1.tgz", bytes(600))
    with drafted(kept_files) as one, drafted(kept_files) as other:
        kept_files.write(one, bytes(300))
        assert kept_files.find(kept, None)
        kept_files.write(other, bytes(300))
        assert not kept_files.find(kept, None)
        with pytest.raises(Unavailable, match="no room"):
            kept_files.write(other, bytes(600))
    put(kept_files, "/b/-/b-1.tgz", bytes(1000))


def test_while_room_is_made_drafts_come_and_go_and_still_count(tmp_path, make_listing_slow):
    kept_files = KeptFiles(tmp_path, 1000)
    kept, _ = put(kept_files, "/a/-/a-1.tgz", bytes(500))
    with drafted(kept_files) as one:
        other = kept_files.draft()
        kept_files.write(other, bytes(400))
        listing = make_listing_slow()
        with meanwhile(kept_files.write, one, bytes(300)):
            listing.wait()
            kept_files.drop(other)
            assert kept_files.find(kept, None) and listing.is_on
            listing.end()
        assert kept_files.find(kept, None), "there was room again"
        kept_files.write(one, bytes(200))
        assert kept_files.find(kept, None)
        kept_files.write(one, bytes(1))
        assert not kept_files.find(kept, None)


def test_what_is_put_anew_while_room_is_made_stays_and_counts(tmp_path, make_listing_slow):
    kept_files = KeptFiles(tmp_path, 1000)
    wanted, path = put(kept_files, "/a", b"old".ljust(500))
    os.utime(path, (1, 1))
    with drafted(kept_files) as other, drafted(kept_files) as new:
        kept_files.write(new, b"new".ljust(300))
        listing = make_listing_slow()
        with meanwhile(kept_files.write, other, bytes(300)):
            listing.wait()
            with meanwhile(kept_files.put, wanted, new):
                time.sleep(0.2)
                listing.end()
        assert path.read_bytes().startswith(b"new")
        kept_files.write(other, bytes(400))
        assert path.exists()
        kept_files.write(other, bytes(1))
        assert not path.exists()


def test_a_file_has_its_content_on_the_disk_before_its_name(tmp_path, monkeypatch):
    """Else a host that dies leaves the name of a tarball without it."""
    flushed, flush = [], os.fsync

    def note(descriptor):
        flushed.append((os.fstat(descriptor).st_size, list(tmp_path.glob("??/*"))))
        flush(descriptor)

    monkeypatch.setattr("os.fsync", note)
    put(KeptFiles(tmp_path, 1000), "/a/-/a-1.tgz", b"content")
    assert flushed == [(7, [])]
