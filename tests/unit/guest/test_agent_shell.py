"""The agent's `shell`, with a real terminal in a real agent process."""
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest.agent.protocol import CONTROL, DATA, REQUEST, encode_frame, encode_json
from guest.client.deadline import Deadline
from guest.client.errors import AgentRefused
from guest.client.identity import GuestIdentity
from guest.client.open_shell import OpenShell
from tests.host.agent_process import TOKEN, RunningAgent
from tests.host.shell_reading import pid_of, read_until, run
from tests.stack.waiting import eventually, is_alive

USER = 1000
Open = Callable[..., OpenShell]


@pytest.fixture
def root() -> Iterator[Path]:
    """A guest's root that its user may walk through, which a test's own directory is not."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        for directory in ("opt/svc", "home/user", "etc/ssh", "run", "var/log", "srv"):
            (base / directory).mkdir(parents=True)
        base.chmod(0o755)
        (base / "opt/svc/initial-token").write_text(TOKEN + "\n")
        home = base / "home/user"
        (base / "etc/passwd").write_text(f"me:x:{USER}:1000::/home/user:/bin/bash\n")
        (home / ".profile").write_text("export GREETED=yes\nPS1='$ '\n")
        for path in (home, home / ".profile"):
            os.chown(path, USER, USER)
        yield base


@pytest.fixture
def open_shell(client) -> Iterator[Open]:
    """Open a shell; it is hung up after the test."""
    opened: list[OpenShell] = []

    def make(cols: int = 80, rows: int = 24, **more: object) -> OpenShell:
        opened.append(client.open_shell(cols, rows, **more))
        return opened[-1]

    yield make
    for shell in opened:
        shell.close()


def test_it_is_a_login_shell_of_the_user_at_home(open_shell, agent) -> None:
    line = ('echo "<$(id -u)|$(id -g)|$USER|$HOME|$0|$GREETED|$TERM|$(tty | cut -c1-9)'
            '|$(stat -c %u $(tty))|$PWD>"; exit')
    seen, code = run(open_shell(), line)
    assert f"<{USER}|{USER}|me|/home/user|-bash||xterm-256color|/dev/pts/|{USER}|" \
           f"{agent.root}/home/user>" in seen
    assert code == 0


def test_its_environment_is_that_of_commands_and_the_callers(open_shell, client) -> None:
    client.adopt(GuestIdentity("a-token-of-its-own", "s1", False, {"SVC_THING": "a b", "X": "old"}))
    shell = open_shell(env={"X": "new"}, term="vt100", shell_id="mine")
    seen, _ = run(shell, 'echo "<$SVC_THING|$X|$TERM|${PYTHONPATH-none}|$LANG>"; exit')
    assert "<a b|new|vt100|none|C.UTF-8>" in seen


@pytest.mark.parametrize("cwd, found", [("/srv", "srv"), ("/nowhere", "home/user")])
def test_it_starts_in_the_directory_if_that_is_there(open_shell, agent, cwd, found) -> None:
    seen, _ = run(open_shell(cwd=cwd), 'echo "<$PWD>"; exit')
    assert f"<{agent.root}/{found}>" in seen


@pytest.mark.parametrize("line, code", [
    ("exit 7", 7), ("kill -TERM $$; kill -KILL $$", 128 + signal.SIGKILL), ("exec false", 1)
])
def test_the_exit_code_is_the_shells(open_shell, line, code) -> None:
    assert run(open_shell(), line)[1] == code


def test_end_of_input_is_a_byte(open_shell) -> None:
    shell = open_shell()
    read_until(shell, r"\$ ")
    shell.send(b"\x04")
    list(shell.output())
    assert shell.exit_code == 0


def test_its_size_is_given_and_may_change(open_shell) -> None:
    shell = open_shell(100, 30)
    shell.send(b"bash -c 'trap \"stty size\" WINCH; stty size; while :; do sleep 0.1; done'\n")
    read_until(shell, "30 100")
    shell.resize(132, 50)
    read_until(shell, "50 132")


def wait_for_sleep(pid: int) -> None:
    """Until the process has become `sleep`: before, bash may catch a signal and be gone before it
    obeys, or nohup not protect it yet."""
    assert eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")


def test_ctrl_c_and_signals_reach_the_foreground_only(open_shell) -> None:
    shell = open_shell()
    for stop, number in ((lambda: shell.send(b"\x03"), 2), (lambda: shell.signal("TERM"), 15)):
        child = pid_of(shell, "bash -c 'echo pid=$$.; exec sleep 600'")
        wait_for_sleep(child)
        stop()
        shell.send(b"echo code=$?.\n")
        read_until(shell, rf"code={128 + number}\.")
        assert not is_alive(child)
    assert run(shell, "exit 5")[1] == 5


def test_twenty_megabytes_arrive_whole(open_shell) -> None:
    shell = open_shell()
    shell.send(b"stty -opost -echo; echo begin; head -c 20000000 /dev/zero | tr '\\0' x; exit\n")
    seen = b"".join(shell.output())
    assert seen.count(b"x") - seen[:300].split(b"begin\n")[0].count(b"x") >= 20_000_000
    assert seen.rpartition(b"begin\n")[2].rstrip(b"logut\r\n") == b"x" * 20_000_000


def test_a_program_that_writes_byte_by_byte_is_no_flood(open_shell) -> None:
    shell = open_shell()
    shell.send(b"stty -echo; python3 -uc 'import os\nfor _ in range(60000): os.write(1, b\"y\")'"
               b"; exit\n")
    assert b"".join(shell.output()).count(b"y") >= 60_000


def test_utf_8_comes_through_wherever_it_is_cut(open_shell) -> None:
    shell = open_shell()
    shell.send(b"stty -echo; echo rea''dy; cat\n")
    read_until(shell, "ready")
    text = "grüße, 世界 🙂\n".encode()
    for byte in text:
        shell.send(bytes([byte]))
    assert text.decode().strip() in read_until(shell, "\U0001f642")


def test_a_backspace_takes_back_a_whole_character(open_shell) -> None:
    shell = open_shell()
    shell.send(b"echo it re$((0))ds; read -r word; echo ${#word}=$word.; exit\n")
    read_until(shell, "it re0ds")
    seen, _ = run(shell, "aé\x7fb")
    assert "2=ab." in seen


def test_output_waits_for_who_does_not_read_and_input_for_who_does_not_take(
        open_shell, agent) -> None:
    shell = open_shell()
    shell.send(b"stty raw -echo; yes; \n")
    before = agent.resident_bytes()
    assert eventually(lambda: agent.resident_bytes() < before + 8_000_000)
    time.sleep(1)
    assert agent.resident_bytes() < before + 8_000_000, "output gathers in the agent"


def test_input_that_nobody_takes_stays_with_the_peer(agent: RunningAgent) -> None:
    with raw_shell(agent) as peer:
        peer.sendall(encode_frame(DATA, b"stty raw -echo; echo pid=$$.; exec sleep 600\n"))
        assert eventually(lambda: b"pid=" in peer.recv(65536))
        before, sent = agent.resident_bytes(), 0
        peer.settimeout(1)
        with pytest.raises(TimeoutError):
            while sent < 100_000_000:
                peer.sendall(encode_frame(DATA, b"z" * 30_000))
                sent += 30_000
        assert agent.resident_bytes() < before + 4_000_000


def test_a_child_in_the_background_does_not_hold_the_result(open_shell) -> None:
    shell = open_shell()
    child = pid_of(shell, "setsid --fork bash -c 'echo pid=$$.; exec sleep 600'; sleep 0")
    other = pid_of(shell, "nohup sleep 600 & echo pid=$!.")
    wait_for_sleep(other)  # nohup itself gives up where the terminal has gone
    try:
        assert run(shell, "exit 0")[1] == 0
        assert is_alive(child) and is_alive(other)
    finally:
        for pid in (child, other):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_hanging_up_ends_the_shell_its_jobs_and_the_foreground(open_shell) -> None:
    shell = open_shell()
    leader = pid_of(shell, "echo pid=$$.")
    job = pid_of(shell, "sleep 600 & echo pid=$!.")
    kept = pid_of(shell, "nohup sleep 600 >/dev/null 2>&1 & echo pid=$!.")
    for pid in (job, kept):
        wait_for_sleep(pid)
    stubborn = pid_of(shell, "bash -c 'trap \"\" HUP; echo pid=$$.; while :; do sleep 1; done'")
    shell.close()
    try:
        for pid in (leader, job, stubborn):
            assert eventually(lambda: not is_alive(pid)), pid
        assert is_alive(kept), "what was started with nohup is gone"
        assert eventually(lambda: not Path(f"/proc/{leader}").exists()), "a zombie is left"
    finally:
        os.kill(kept, signal.SIGKILL)


def test_hanging_up_is_noticed_while_nobody_takes_the_input(open_shell) -> None:
    shell = open_shell()
    leader = pid_of(shell, "stty raw -echo; echo pid=$$.; exec sleep 600")
    sender = threading.Thread(target=lambda: shell.send(b"z" * 50_000_000))
    sender.start()
    sender.join(1)
    assert sender.is_alive(), "it is taken although nobody reads"
    shell.hang_up()
    sender.join(10)
    shell.close()
    assert eventually(lambda: not is_alive(leader))


def test_a_guest_that_was_restored_hangs_up_its_shells(open_shell, client) -> None:
    shell = open_shell()
    leader = pid_of(shell, "echo pid=$$.")
    client.adopt(GuestIdentity("a-token-of-its-own", "s1", False, {}))
    assert eventually(lambda: not is_alive(leader))


@pytest.mark.parametrize("fields", [
    {"cols": 0}, {"rows": 5000}, {"cols": "80"}, {"term": "a\0"}, {"id": "x" * 65}, {"env": [1]}
])
def test_a_request_that_makes_no_sense_is_refused(agent: RunningAgent, client, fields) -> None:
    with pytest.raises(AgentRefused, match="bad_request"):
        client._call("shell", {"cols": 80, "rows": 24} | fields, Deadline(10))


@pytest.mark.parametrize("frame", [
    encode_frame(DATA), encode_json(REQUEST, {}), encode_frame(CONTROL, b"nonsense"),
    encode_json(CONTROL, {"type": "resize", "cols": 0, "rows": 1}),
    encode_json(CONTROL, {"type": "signal", "name": "STOP"}),
    encode_json(CONTROL, {"type": "signal", "name": ["INT"]}), encode_json(CONTROL, {"type": []}),
])
def test_what_is_not_the_protocol_hangs_up(agent: RunningAgent, frame: bytes) -> None:
    with raw_shell(agent) as peer:
        peer.sendall(frame)
        while peer.recv(65536):
            pass


def test_there_is_a_limit_and_what_ended_does_not_count(open_shell, agent) -> None:
    shells = [open_shell() for _ in range(64)]
    with pytest.raises(AgentRefused, match="too_many"):
        open_shell()
    descriptors = len(os.listdir(f"/proc/{agent.process.pid}/fd"))
    for shell in shells:
        shell.close()
    assert eventually(lambda: len(os.listdir(f"/proc/{agent.process.pid}/fd")) < descriptors - 250)
    assert run(open_shell(), "exit 3")[1] == 3


def raw_shell(agent: RunningAgent) -> socket.socket:
    """A connection with an open shell, without our client."""
    peer = socket.create_connection(("127.0.0.1", agent.port))
    peer.settimeout(20)
    peer.sendall(encode_json(REQUEST, {"op": "shell", "token": TOKEN, "cols": 80, "rows": 24}))
    return peer
