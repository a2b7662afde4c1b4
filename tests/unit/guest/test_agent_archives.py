"""Directory trees carried out of and into a real agent: whole, or with an error; on the host's GNU
tar."""
import io
import os
import signal
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.agent.protocol import DATA, FAILURE, encode_frame
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentRefused
from tests.host.agent_process import TOKEN, RunningAgent
from tests.host.agent_wire import Wire
from tests.stack.waiting import eventually

NAMES = [
    b"plain", b"with space", b"with\nnewline", "ünïcode".encode(), b"\xff\xfe not UTF-8", b"-dash",
    b"x" * 250
]


@pytest.fixture
def home(agent: RunningAgent) -> Path:
    return agent.root / "home/user"


@pytest.fixture
def tree(home: Path) -> Path:
    """Everything a project directory may hold that a tar may lose."""
    project = home / "project"
    project.mkdir()
    for name in NAMES:
        with open(os.path.join(os.fsencode(project), name), "wb") as file:
            file.write(name * 100)
    (project / "dir").mkdir(mode=0o2750)
    (project / "dir/program").write_bytes(b"#!/bin/sh\n")
    os.chmod(project / "dir/program", 0o4711)
    os.chown(project / "dir/program", 1234, 5678)
    os.utime(project / "dir/program", ns=(10 ** 18, 10 ** 18 + 123_456_789))
    (project / "dangling").symlink_to("/nowhere/at all")
    os.link(project / "plain", project / "second name")
    with open(project / "sparse", "wb") as file:
        file.truncate(2 << 30)
        file.seek(1 << 30)
        file.write(b"island")
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(os.path.relpath(project / "socket"))
    return project


def facts(directory: Path) -> dict[str, tuple[object, ...]]:
    """What must survive of each entry; contents only of small files."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        about: tuple[object, ...] = (
            status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns,
        )
        if path.is_symlink():
            about += (os.readlink(path),)
        elif path.is_file():
            about += (status.st_nlink, status.st_size,
                      path.read_bytes() if status.st_size < 1 << 20 else None)
        found[str(path.relative_to(directory))] = about
    return found


@pytest.mark.parametrize("piece_bytes", [1 << 20, 777])
def test_a_tree_comes_back_as_it_was(client: AgentClient, tree: Path, home: Path,
                                     piece_bytes: int) -> None:
    archive = b"".join(client.archive("project", 60))
    assert len(archive) < 1 << 20, "holes are not carried"
    pieces = (archive[start:start + piece_bytes] for start in range(0, len(archive), piece_bytes))
    client.unarchive("/home/user/deep/copy", pieces, 60)
    expected = facts(tree)
    del expected["socket"]
    assert facts(home / "deep/copy") == expected
    copied = (home / "deep/copy/sparse").stat()
    assert copied.st_blocks * 512 < 1 << 20
    with open(home / "deep/copy/sparse", "rb") as file:
        file.seek(1 << 30)
        assert file.read(6) == b"island"


def test_python_reads_the_archive_too(client: AgentClient, tree: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(b"".join(client.archive("project", 60)))) as archive:
        names = {os.fsencode(name) for name in archive.getnames()}
    assert {b"."} | {b"./" + name for name in NAMES} <= names


def test_unpacking_goes_over_what_is_there(client: AgentClient, tree: Path, home: Path) -> None:
    archive = b"".join(client.archive("project", 60))
    copy = home / "copy"
    copy.mkdir()
    (copy / "plain").write_bytes(b"old")
    (copy / "own").write_bytes(b"kept")
    client.unarchive("copy", [archive], 60)
    assert (copy / "plain").read_bytes() == (tree / "plain").read_bytes()
    assert (copy / "own").read_bytes() == b"kept"


@pytest.mark.parametrize("name", ["../escaped", "dir/../../escaped", "/home/user/escaped"])
def test_no_entry_leaves_the_directory(client: AgentClient, home: Path, name: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    try:
        client.unarchive("project", [buffer.getvalue()], 60)
    except AgentRefused:
        pass  # `..` is refused, a leading slash is taken away
    assert not (home / "escaped").exists() and not Path("/home/user/escaped").exists()


def test_a_link_in_the_archive_leads_nothing_out_of_the_directory(
    client: AgentClient, home: Path
) -> None:
    (home / "outside").mkdir()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(home / "outside")
        archive.addfile(link)
        entry = tarfile.TarInfo("link/escaped")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(AgentRefused):
        client.unarchive("project", [buffer.getvalue()], 60)
    assert os.listdir(home / "outside") == []


def test_a_cut_archive_is_refused_wherever_it_is_cut(client: AgentClient, home: Path) -> None:
    (home / "project").mkdir()
    for number in range(3):
        (home / f"project/{number}").write_bytes(os.urandom(3000))
    archive = b"".join(client.archive("project", 60))
    content_bytes = len(archive.rstrip(b"\0"))
    for cut in {0, 100, *range(512, content_bytes + 512, 512)}:
        with pytest.raises(AgentRefused):
            client.unarchive("copy", [archive[:cut]], 60)


def test_what_is_no_tar_is_refused(client: AgentClient) -> None:
    with pytest.raises(AgentRefused):
        client.unarchive("copy", [os.urandom(5_000_000), bytes(1024)], 60)


@pytest.mark.parametrize("operation,path,code", [
    ("archive", "/home/user/file", "bad_request"),
    ("archive", "/home/user/file/x", "not_a_file"),
    ("archive", "", "bad_request"),
    ("archive", "/home/user/none", "not_found"),
    ("unarchive", "/home/user/file", "bad_request"),
    ("unarchive", "/home/user/file/x", "not_a_file"),
    ("unarchive", "", "bad_request"),
])
def test_impossible_directories_are_refused(
        client: AgentClient, home: Path, operation: str, path: str, code: str) -> None:
    (home / "file").write_bytes(b"x")
    with pytest.raises(AgentRefused) as refusal:
        list(client.archive(path, 60)) if operation == "archive" else client.unarchive(
            path, [b""], 60)
    assert refusal.value.code == code


def test_files_that_change_and_vanish_do_not_fail_an_archive(client: AgentClient,
                                                             home: Path) -> None:
    (home / "project").mkdir()
    (home / "project/stable").write_bytes(b"stable" * 1000)
    over = threading.Event()

    def churn() -> None:
        number = 0
        while not over.is_set():
            path = home / f"project/{number % 50}"
            path.write_bytes(os.urandom(100_000)) if number % 3 else path.unlink(missing_ok=True)
            number += 1

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        for _ in range(10):
            archive = b"".join(client.archive("project", 60))
            with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
                stable = opened.extractfile("./stable")
                assert stable and stable.read() == b"stable" * 1000
    finally:
        over.set()
        churning.join()


def _tars(directory: Path) -> list[int]:
    """Processes that archive this directory or unpack into it."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == b"/bin/tar" and f"--directory={directory}".encode() in words:
            found.append(int(name))
    return found


@pytest.fixture
def big(home: Path) -> Path:
    """A directory that takes more than every buffer on the way to a client."""
    (home / "big").mkdir()
    (home / "big/file").write_bytes(os.urandom(1 << 20) * 40)
    return home / "big"


def test_a_tar_that_dies_fails_the_stream(client: AgentClient, big: Path) -> None:
    pieces = client.archive("big", 60)
    next(pieces)
    [tar] = _tars(big)
    os.kill(tar, signal.SIGKILL)
    with pytest.raises(AgentRefused):
        list(pieces)


def test_a_slow_reader_stops_tar_and_not_the_agent(agent: RunningAgent, client: AgentClient,
                                                   big: Path) -> None:
    pieces = client.archive("big", 60)
    first = next(pieces)
    for _ in range(20):  # any of which would be late if the loop waited for tar
        assert client.ping(2).adopted is None
    assert len(_tars(big)) == 1, "tar waits"
    assert agent.resident_bytes() < 40 << 20
    assert len(first) + sum(map(len, pieces)) > 40 << 20
    assert eventually(lambda: not _tars(big))


def test_tar_ends_with_the_connection(client: AgentClient, agent: RunningAgent, big: Path,
                                      home: Path) -> None:
    pieces = client.archive("big", 60)
    next(pieces)
    assert len(_tars(big)) == 1
    del pieces  # closes the generator, and with it the connection
    assert eventually(lambda: not _tars(big))
    with Wire(agent.port) as wire:
        wire.request("unarchive", TOKEN, directory="/home/user/copy")
        wire.socket.sendall(encode_frame(DATA, bytes(100)))
        assert eventually(lambda: bool(_tars(home / "copy")))
        wire.reset()
    assert eventually(lambda: not _tars(home / "copy"))


def test_the_caller_gives_up_by_an_exception(client: AgentClient, big: Path, home: Path) -> None:
    archive = b"".join(client.archive("big", 60))

    def broken() -> Iterator[bytes]:
        yield archive[:1 << 20]
        raise ConnectionError("the store went away")

    with pytest.raises(ConnectionError):
        client.unarchive("copy", broken(), 60)
    assert eventually(lambda: not _tars(home / "copy"))


def test_more_after_the_end_is_no_longer_the_archive(agent: RunningAgent, tree: Path) -> None:
    with Wire(agent.port) as wire:
        wire.request("unarchive", TOKEN, directory="/home/user/copy")
        wire.socket.sendall(
            encode_frame(DATA, bytes(10240)) + encode_frame(DATA, b"x" * 512) + encode_frame(DATA))
        assert wire.answer()[0] == FAILURE


def test_growing_the_disk_answers_with_its_size(client: AgentClient, agent: RunningAgent) -> None:
    facts_now = os.statvfs(agent.root)
    assert client.grow_disk(1 << 34).total_bytes == facts_now.f_blocks * facts_now.f_frsize
