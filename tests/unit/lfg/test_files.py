"""Files of the project as lfg shows them: cut at limits, and never hanging."""
import os
import socket

import pytest

MAX_ENTRIES, MAX_FILE_BYTES = 1000, 512 * 1024


def refused(lfg, route, **query) -> tuple[int, str]:
    answer = lfg.http.get(route, params=query)
    return answer.status_code, answer.json()["error"]


def test_a_directory_lists_directories_first_and_says_what_is_what(lfg):
    for name in ("b", "a"):
        (lfg.project / name).mkdir()
    (lfg.project / "z é\n").write_text("")
    os.mkfifo(lfg.project / "pipe")
    for name, target in (("up", ".."), ("gone", "nowhere"), ("self", "self"), ("to-file", "z é\n")):
        (lfg.project / name).symlink_to(target)
    told = lfg.get("/api/files")
    assert [(entry["name"], entry["kind"], entry["link"]) for entry in told["entries"]] == [
        ("a", "directory", False), ("b", "directory", False), ("up", "directory", True),
        ("gone", "broken", True), ("pipe", "special", False), ("self", "broken", True),
        ("to-file", "file", True), ("z é\n", "file", False)]
    assert not told["more"] and lfg.get("/api/files", path="a") == {"entries": [], "more": False}


def test_a_big_directory_is_cut(lfg):
    for number in range(MAX_ENTRIES + 5):
        (lfg.project / str(number)).touch()
    told = lfg.get("/api/files")
    assert len(told["entries"]) == MAX_ENTRIES and told["more"]


def test_text_is_shown_up_to_a_limit_and_what_is_no_text_is_said_so(lfg):
    (lfg.project / "text").write_text("grüße\n")
    assert lfg.get("/api/file", path="text") == {
        "kind": "text", "size": 8, "text": "grüße\n", "cut": False}
    (lfg.project / "long").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    told = lfg.get("/api/file", path="long")
    assert told["cut"] and len(told["text"]) == MAX_FILE_BYTES and told["size"] > MAX_FILE_BYTES
    (lfg.project / "binary").write_bytes(b"\x7fELF\0" + b"x" * 9000)
    assert lfg.get("/api/file", path="binary") == {"kind": "binary", "size": 9005}
    (lfg.project / "empty").touch()
    assert lfg.get("/api/file", path="empty")["text"] == ""


def test_pipes_devices_sockets_and_proc_do_not_hang_it(lfg, tmp_path):
    os.mkfifo(lfg.project / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(lfg.project / "socket"))
        for path in ("pipe", "socket", "/dev/zero", "/dev/tty", "/dev/ptmx"):
            assert lfg.get("/api/file", path=path) == {"kind": "special"}, path
    (lfg.project / "link").symlink_to("/dev/zero")
    assert lfg.get("/api/file", path="link") == {"kind": "special"}
    assert "processor" in lfg.get("/api/file", path="/proc/cpuinfo")["text"]
    assert lfg.get("/api/files", path="/proc")["entries"]
    assert lfg.get("/api/files", path="/proc/self/task")["entries"]


def test_what_cannot_be_read_gives_its_place_back(lfg):
    """Only a few files are read at a time."""
    for _ in range(30):
        status, sentence = refused(lfg, "/api/file", path="/proc/self/mem")
        assert status == 409 and sentence.startswith("It cannot be read")
    assert lfg.http.get("/api/files").status_code == 200


@pytest.mark.parametrize(("path", "status"), [
    ("nothing", 404), ("text/below", 404), ("a\0b", 400), ("x" * 5000, 400), ("x" * 300, 400),
    ("loop", 400), (".", 400)])
def test_a_path_that_is_no_file_is_refused_with_a_sentence(lfg, path, status):
    (lfg.project / "text").touch()
    (lfg.project / "loop").symlink_to("loop")
    found, sentence = refused(lfg, "/api/file", path=path)
    assert found == status and sentence.endswith(".")


def test_a_file_is_no_directory(lfg):
    (lfg.project / "text").touch()
    assert refused(lfg, "/api/files", path="text") == (400, "This is not a directory.")
