"""Both bridges to a shell on a real terminal, `shell.mjs` with each runtime, against a shell host
that does what a test says."""
import os
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest

from bin.stack.site import ROOT
from tests.fakes.shell_host import Peer, ShellHost
from tests.host.javascript import RUNTIMES, node
from tests.host.program_on_terminal import ProgramOnTerminal

OUTPUT_MODES = 1
KEY = "svc_sk_a-key"
AWAY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"
GONE = b"HTTP/1.1 410 Gone\r\nContent-Length: 24\r\n\r\n" + b'{"error": "It stopped."}'


@pytest.fixture(params=["svc-shell", *RUNTIMES])
def command(request: pytest.FixtureRequest) -> list[str | Path]:
    """How a user starts the bridge."""
    if request.param == "svc-shell":
        return [sys.executable, "-m", "sdk.shell", "s 1"]
    runtime = RUNTIMES[request.param]()
    if not runtime:
        pytest.skip("Bun is taken out of the guest image, and there is none yet")
    return [runtime, ROOT / "sdk/shell/shell.mjs", "s 1"]


def start(command, host: ShellHost, **size: int) -> ProgramOnTerminal:
    return ProgramOnTerminal(command, {"SVC_API_KEY": KEY, "SVC_SHELL_URL": host.url + "/"}, **size)


def run(command, url: str, line: str = '"$@"') -> subprocess.CompletedProcess[bytes]:
    """The bridge without a terminal, as a line of a script that may redirect what it has."""
    return subprocess.run(
        ["bash", "-c", line, "bash", *command], capture_output=True, cwd=ROOT, timeout=30,
        env={"PATH": os.environ["PATH"], "SVC_API_KEY": KEY, "SVC_SHELL_URL": url}, check=False)


def test_keys_output_size_pings_and_the_exit_code_pass(command) -> None:
    seen: list[Any] = []

    def shell(peer: Peer) -> None:
        seen.append(peer.path)
        seen.append(peer.next())
        peer.ping(b"there?")
        seen.append(peer.next())
        peer.show("grüße ".encode()[:3])
        peer.show("grüße $ ".encode()[3:])
        seen.append(peer.typed(until=b"\x03"))
        peer.show(b"typed")
        seen.append(peer.next())
        peer.show(b"bye")
        peer.exit(42)

    with ShellHost(shell) as host, start(command, host, cols=100, rows=30) as program:
        program.read_until(r"grüße \$ ")
        assert not program.modes()[OUTPUT_MODES] & termios.OPOST, "line feeds are changed"
        program.type("é~.x\r~~\x03".encode())
        program.read_until("typed")
        program.resize(132, 50)
        assert program.exit_code() == 42 and program.shown.endswith(b"bye")
        assert program.modes() == program.usual_modes
    path, size, pong, typed, other_size = seen
    assert (path, pong) == ("/s%201", b"\3there?")
    assert b'"cols":100' in size.replace(b" ", b"") and size[:1] == b"\1"
    assert typed == "é~.x\r~\x03".encode()
    assert b'"rows":50' in other_size.replace(b" ", b"")


def test_a_tilde_and_a_dot_leave_a_shell_that_does_not_answer(command) -> None:
    def shell(peer: Peer) -> None:
        peer.show(b"ready")
        peer.websocket.receive(20)
        peer.typed(until=b"never")

    with ShellHost(shell) as host, start(command, host) as program:
        program.read_until("ready")
        program.type(b"a\r~.")
        assert program.exit_code() == 0
        assert program.modes() == program.usual_modes


def test_after_a_sleep_a_key_opens_another_shell(command) -> None:
    typed: list[bytes] = []

    def sleeps(peer: Peer) -> None:
        peer.show(b"first")
        peer.next()
        peer.websocket.close(1001, "The sandbox was put to sleep")

    def wakes(peer: Peer) -> None:
        peer.show(b"second")
        typed.append(peer.typed(until=b"x"))
        peer.exit(3)

    with ShellHost(sleeps, wakes) as host, start(command, host) as program:
        program.read_until("first[\\s\\S]*put to sleep; any key opens another shell")
        program.type(b"k")
        program.read_until("second")
        program.type(b"x")
        assert program.exit_code() == 3
    assert typed == [b"x"], "the key that woke it was typed"


def test_a_service_that_refuses_while_it_restarts_is_tried_again(command) -> None:
    def restarts(peer: Peer) -> None:
        peer.next()
        peer.websocket.close(1001, "The service restarts")

    def is_back(peer: Peer) -> None:
        peer.show(b"second")
        peer.typed(until=b"x")
        peer.exit(3)

    with ShellHost(restarts, AWAY, is_back) as host, start(command, host) as program:
        program.read_until("restarts; any key opens another shell")
        program.type(b"k")
        program.read_until("second")
        program.type(b"x")
        assert program.exit_code() == 3


def test_a_revoked_key_ends_it_with_the_reason(command) -> None:
    def shell(peer: Peer) -> None:
        peer.next()
        peer.websocket.close(1008, "The credential was revoked")

    with ShellHost(shell) as host, start(command, host) as program:
        assert program.exit_code() == 255
        assert b"1008" in program.shown and b"revoked" in program.shown


def test_a_refusal_ends_it(command) -> None:
    with ShellHost(GONE) as host, start(command, host) as program:
        assert program.exit_code() == 255
        assert b"It stopped." in program.shown or b"was not opened" in program.shown
        assert program.modes() == program.usual_modes


def sleeps(peer: Peer) -> None:
    peer.next()
    peer.websocket.close(1001, "The sandbox was put to sleep")


@pytest.mark.parametrize("before", [(), (sleeps,)], ids=["at first", "another shell"])
def test_ctrl_c_leaves_a_host_that_does_not_answer(command, before) -> None:
    asked = threading.Event()
    with ShellHost(*before, asked) as host, start(command, host) as program:
        if before:
            program.read_until("any key opens another shell")
            program.type(b"k")
        assert asked.wait(30), "no shell is asked for"
        program.type(b"\x03")
        assert program.exit_code() == 255
        assert program.modes() == program.usual_modes
        assert b"Traceback" not in program.shown


def test_what_is_typed_before_it_is_open_goes_to_the_shell(command) -> None:
    def shell(peer: Peer) -> None:
        peer.typed(until=b"early")
        peer.exit(4)

    with ShellHost(shell) as host, start(command, host) as program:
        program.type(b"early\r")
        assert program.exit_code() == 4


def test_what_is_shown_does_not_wait_for_what_is_typed(command) -> None:
    """A paste into `cat`: neither side may wait for the other to read first."""
    pasted, shown = 3_000_000, 6_000_000
    got = 0

    def shell(peer: Peer) -> None:
        nonlocal got
        for _ in range(shown // 30_000):
            peer.show(b"o" * 30_000)
        peer.show(b"END")
        while got < pasted:
            message = peer.next()
            got += len(message) - 1 if message[:1] == b"\0" else 0
        peer.exit(0)

    with ShellHost(shell) as host, start(command, host) as program:
        program.read_until("o")
        threading.Thread(target=program.type, args=(b"p" * pasted,), daemon=True).start()
        program.read_until("END", 60)
        assert program.exit_code(60) == 0
    assert got == pasted


@pytest.mark.parametrize("source", ["a pipe", "a file", "nothing"])
def test_without_a_terminal_the_end_of_input_is_typed_and_output_is_bytes(command, tmp_path,
                                                                          source) -> None:
    def shell(peer: Peer) -> None:
        typed = peer.typed(until=b"\x04")
        peer.show(b"\xff<" + typed + b">")
        peer.exit(7)

    given = b"" if source == "nothing" else b"~.\nls\n"
    (tmp_path / "input").write_bytes(given)
    with ShellHost(shell) as host, (tmp_path / "input").open("rb") as file:
        stdin: dict[str, Any] = {
            "a pipe": {"input": given}, "a file": {"stdin": file},
            "nothing": {"stdin": subprocess.DEVNULL}}[source]
        result = subprocess.run(
            command, capture_output=True, cwd=ROOT, timeout=30, check=False, **stdin,
            env={"PATH": os.environ["PATH"], "SVC_API_KEY": KEY, "SVC_SHELL_URL": host.url},
        )
    assert (result.returncode, result.stdout) == (7, b"\xff<" + given + b"\x04>")


def test_without_a_key_it_says_what_is_missing(command) -> None:
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30,
                            env={"PATH": os.environ["PATH"]}, check=False)
    assert result.returncode == 255 and "SVC_API_KEY" in result.stderr


def test_without_a_sandbox_it_says_what_is_missing(command) -> None:
    result = run([*command[:-1]], "ws://127.0.0.1:1")
    assert result.returncode == 255 and b"SANDBOX" in result.stderr
    assert result.stderr.count(b"\n") == 1


def test_a_node_without_websockets_is_told_which_has_them() -> None:
    command = [node(), "--no-experimental-websocket", ROOT / "sdk/shell/shell.mjs", "s 1"]
    result = run(command, "ws://127.0.0.1:1")
    assert result.returncode == 255 and b"Node.js 22" in result.stderr


def test_it_ends_without_a_word_when_who_reads_its_output_has_left(command) -> None:
    def shell(peer: Peer) -> None:
        peer.show(b"line\n")
        peer.typed(until=b"k")
        peer.show(b"another line\n")
        peer.typed(until=b"never")

    reader = "{ head -n 1; exec <&-; echo has left >&2; }"
    piped = ["bash", "-c", f'"$@" | {reader}; exit ${{PIPESTATUS[0]}}', "bash", *command]
    with ShellHost(shell) as host, start(piped, host) as program:
        program.read_until(r"line\s+has left\s+")
        program.type(b"k")
        assert program.exit_code() == 255 and not program.shown.strip()
        assert program.modes() == program.usual_modes


def test_output_that_cannot_be_written_ends_it_with_the_reason(command) -> None:
    def shell(peer: Peer) -> None:
        peer.show(b"line")
        peer.typed(until=b"never")

    with ShellHost(shell) as host:
        result = run(command, host.url, '"$@" </dev/null >/dev/full')
    assert result.returncode == 255 and b"no space left" in result.stderr.lower()
    assert b"\n" not in result.stderr.strip(), result.stderr


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_descriptor_is_as_dev_null(command, closed) -> None:
    def shell(peer: Peer) -> None:
        peer.show(b"line")
        peer.typed(until=b"\x04")
        peer.tell(type="error", error="not understood")
        peer.exit(7)

    with ShellHost(shell) as host:
        result = run(command, host.url, f'"$@" {closed}')
    assert (result.returncode, result.stdout) == (7, b"" if ">" in closed else b"line")


@pytest.mark.parametrize("nowhere", ["2>&-", "2>/dev/full"])
def test_what_cannot_be_told_changes_nothing(command, nowhere) -> None:
    def shell(peer: Peer) -> None:
        peer.tell(type="error", error="not understood")
        peer.typed(until=b"\x04")
        peer.exit(7)

    with ShellHost(shell, GONE) as host:
        results = [run(command, host.url, f'"$@" </dev/null {nowhere}') for _ in range(2)]
    assert [(result.returncode, result.stdout) for result in results] == [(7, b""), (255, b"")]
