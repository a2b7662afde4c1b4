"""Files written and read through a real agent: complete or not at all; and the connection as the
agent's child has it, which serves them."""
import errno
import fcntl
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.agent.channel import Channel, PeerGone
from guest.agent.files import refuse_os_errors
from guest.agent.protocol import DATA, FAILURE, Refused, encode_frame
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentRefused
from tests.host.agent_process import TOKEN, RunningAgent
from tests.host.agent_wire import Wire
from tests.stack.waiting import eventually

SELECT_MOST = 1023  # the highest descriptor that select() takes


@pytest.fixture
def home(agent: RunningAgent) -> Path:
    return agent.root / "home/user"


@pytest.mark.parametrize("size", [0, 1, 65_536, 1_048_576, 5_000_001])
def test_what_was_written_is_read_back(client: AgentClient, size: int) -> None:
    content = os.urandom(size)
    assert client.write_file("/srv/a/b/file", content) == size
    assert client.read_file("/srv/a/b/file", max_bytes=size) == content


def test_a_stream_is_written_without_knowing_its_length(client: AgentClient, home: Path) -> None:
    def pieces() -> Iterator[bytes]:
        for number in range(100):
            yield bytes([number]) * 40_000

    assert client.write_file("/home/user/streamed", pieces()) == 4_000_000
    assert (home / "streamed").read_bytes() == b"".join(pieces())


def test_a_relative_path_counts_from_the_home_directory(client: AgentClient, home: Path) -> None:
    client.write_file("notes/today", b"hello")
    assert (home / "notes/today").read_bytes() == b"hello"
    assert client.read_file("notes/today", 100) == b"hello"


def test_any_number_of_missing_directories_is_made(client: AgentClient, home: Path) -> None:
    deep = "d/" * 1500 + "file"
    try:
        assert client.write_file(deep, b"x") == 1
        assert client.read_file(deep, 1) == b"x"
    finally:
        client.exec(["rm", "-r", "d"], cwd="/home/user")  # which is too deep for shutil


def test_links_without_end_are_refused_with_a_code(client: AgentClient, home: Path) -> None:
    for number in range(1100):
        (home / f"link{number}").symlink_to(f"link{number + 1}")
    with pytest.raises(AgentRefused) as refusal:
        client.write_file("link0", b"x")
    assert refusal.value.code == "bad_request"


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o4711, 0o000])
def test_the_mode_is_exactly_what_was_asked_for(client: AgentClient, home: Path, mode: int) -> None:
    client.write_file("program", b"#!/bin/sh\n", mode)
    assert (home / "program").stat().st_mode & 0o7777 == mode


def test_a_link_is_followed_and_stays_a_link(client: AgentClient, home: Path) -> None:
    (home / "real").write_bytes(b"old")
    (home / "link").symlink_to(home / "real")
    client.write_file(f"{home}/link".removeprefix(str(home.parents[1])), b"new")
    assert (home / "link").is_symlink() and (home / "real").read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_new_files_belong_to_the_owner_of_their_directory_and_old_ones_keep_theirs(
        client: AgentClient, home: Path) -> None:
    os.chown(home, 1000, 1000)
    client.write_file("deep/er/file", b"x")
    assert [(home / name).stat().st_uid for name in ("deep", "deep/er", "deep/er/file")] == [
        1000, 1000, 1000,
    ]
    os.chown(home / "deep/er/file", 33, 33)
    client.write_file("deep/er/file", b"y")
    assert (home / "deep/er/file").stat().st_uid == 33


@pytest.mark.parametrize("how", ["close", "reset", "garbage", "too short", "too long"])
def test_a_stream_that_breaks_leaves_the_old_file_and_nothing_else(
    agent: RunningAgent, home: Path, how: str
) -> None:
    (home / "kept").write_bytes(b"old")
    with Wire(agent.port) as wire:
        size = {"too short": 10, "too long": 3}.get(how, 6)
        wire.request("write", TOKEN, path="/home/user/kept", mode=0o644, sizeBytes=size)
        wire.socket.sendall(encode_frame(DATA, b"half"))
        if how == "close":
            wire.socket.close()
        elif how == "reset":
            wire.reset()
        elif how == "garbage":
            wire.socket.sendall(b"\xff" * 50)
        else:
            wire.socket.sendall(encode_frame(DATA))
            assert wire.answer()[0] == FAILURE
    assert eventually(lambda: os.listdir(home) == ["kept"])
    assert (home / "kept").read_bytes() == b"old"


def test_a_reader_of_the_file_never_sees_a_mixture(client: AgentClient, home: Path) -> None:
    versions = [bytes([letter]) * 300_000 for letter in b"ab"]
    (home / "file").write_bytes(versions[0])
    reader = client.exec(
        shell="for n in $(seq 100); do tr -d 'a' < file | wc -c; done | sort -u > seen & echo",
        cwd="/home/user")
    assert reader.exit_code == 0
    for number in range(20):
        client.write_file("file", versions[number % 2])
    assert eventually(lambda: (home / "seen").exists() and (home / "seen").stat().st_size > 0)
    assert set((home / "seen").read_text().split()) <= {"0", "300000"}


REFUSALS = {
    "missing": ("read", "/home/user/none", "not_found"),
    "directory read": ("read", "/home/user", "not_a_file"),
    "directory written": ("write", "/home/user", "not_a_file"),
    "below a file": ("write", "/home/user/file/x", "not_a_file"),
    "fifo read": ("read", "/home/user/fifo", "not_a_file"),
    "fifo written": ("write", "/home/user/fifo", "not_a_file"),
    "empty path": ("read", "", "bad_request"),
    "NUL": ("write", "/home/\0", "bad_request"),
    "endless name": ("write", "/" + "x" * 5000, "bad_request"),
    "link to itself read": ("read", "/home/user/loop", "bad_request"),
    "link to itself written": ("write", "/home/user/loop", "bad_request"),
}


@pytest.mark.parametrize("operation,path,code", REFUSALS.values(), ids=REFUSALS)
def test_impossible_paths_are_refused_with_a_code(
        client: AgentClient, home: Path, operation: str, path: str, code: str) -> None:
    (home / "file").write_bytes(b"x")
    os.mkfifo(home / "fifo")
    (home / "loop").symlink_to("loop")
    with pytest.raises(AgentRefused) as refusal:
        client.read_file(path, 100) if operation == "read" else client.write_file(path, b"x")
    assert refusal.value.code == code
    assert sorted(os.listdir(home)) == ["fifo", "file", "loop"]


@pytest.mark.parametrize(("number", "code"), [
    (errno.ENOENT, "not_found"), (errno.EISDIR, "not_a_file"), (errno.ENOTDIR, "not_a_file"),
    (errno.EACCES, "permission"), (errno.EPERM, "permission"), (errno.ENOSPC, "no_space"),
    (errno.EDQUOT, "no_space"), (errno.EROFS, "failed"), (errno.EIO, "failed"), (None, "failed"),
])
def test_what_the_system_says_has_a_code(number: int | None, code: str) -> None:
    with pytest.raises(Refused) as refusal, refuse_os_errors("/x"):
        raise OSError(number, "because")
    assert (refusal.value.code, refusal.value.message) == (code, "/x: because")


def test_a_refused_write_is_told_even_while_much_is_being_sent(client: AgentClient) -> None:
    with pytest.raises(AgentRefused) as refusal:
        client.write_file("/home/user", (bytes(1_000_000) for _ in range(60)))
    assert refusal.value.code == "not_a_file"


def test_a_file_above_the_limit_is_too_large(client: AgentClient, home: Path) -> None:
    (home / "file").write_bytes(bytes(1001))
    assert len(client.read_file("file", 1001)) == 1001
    with pytest.raises(AgentRefused) as refusal:
        client.read_file("file", 1000)
    assert refusal.value.code == "too_large"


def test_a_file_that_hides_its_size_is_still_limited(agent: RunningAgent, client: AgentClient,
                                                     home: Path) -> None:
    (home / "endless").symlink_to("/proc/kallsyms")
    assert os.stat(home / "endless").st_size == 0
    with pytest.raises(AgentRefused) as refusal:
        client.read_file("endless", 100)
    assert refusal.value.code == "too_large"


def test_disk_usage_is_that_of_the_root_file_system(client: AgentClient,
                                                    agent: RunningAgent) -> None:
    facts = os.statvfs(agent.root)
    usage = client.disk()
    assert usage.total_bytes == facts.f_blocks * facts.f_frsize
    assert 0 < usage.used_bytes <= usage.total_bytes
    assert usage.available_bytes <= usage.total_bytes


def test_sync_answers(client: AgentClient) -> None:
    client.sync()


@pytest.fixture(params=[0, SELECT_MOST + 1], ids=["low", "high"])
def channel(request):
    """A channel on a descriptor that is at least so high, and its peer."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, SELECT_MOST + 100), hard))
    ours, peer = socket.socketpair()
    with ours, peer:
        number = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, request.param)
        with socket.socket(fileno=number) as moved:
            ours.close()
            yield Channel(moved, b""), peer
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_time_passes_while_the_peer_is_there(channel):
    waiting, _ = channel
    waiting.wait_unless_gone(0.01)


@pytest.mark.parametrize("goes", [
    lambda peer: peer.close(), lambda peer: peer.shutdown(socket.SHUT_WR),
    lambda peer: peer.sendall(b"?")], ids=["closes", "says no more", "says something"])
def test_a_peer_that_goes_is_noticed_before_the_time_is_over(channel, goes):
    waiting, peer = channel
    goes(peer)
    with pytest.raises(PeerGone):
        waiting.wait_unless_gone(60)
