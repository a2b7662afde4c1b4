"""Terminals of lfg: real programs on real pseudo-terminals, seen over WebSockets."""
import os
import re
import signal

import pytest
import websocket

from tests.stack.waiting import eventually
from tests.unit.lfg.conftest import FLOODED_BYTES

KEPT_BYTES, UNREAD_BYTES, FRAME_BYTES = 256 * 1024, 1024 * 1024, 32 * 1024


def test_a_program_starts_when_somebody_looks_and_takes_keys_and_sizes(lfg):
    assert {tab["state"] for tab in lfg.tabs().values()} == {"new"}
    with lfg.look("claude", 101, 31) as look:
        look.until(f"claude in {lfg.project} at 31 101")
        look.type("hello\n")
        look.until("you said hello")
        look.say(type="resize", cols=120, rows=40)
        look.until("40 120")
        assert look.told_of("size", cols=120)["yours"]
        states = {name: tab["state"] for name, tab in lfg.tabs().items()}
        assert states.pop("claude") == "running" and set(states.values()) == {"new"}


def test_the_shell_is_a_login_shell_on_a_terminal_with_jobs_and_signals(lfg):
    with lfg.look("shell") as look:
        look.until("ready> ")
        look.type("tty; shopt login_shell; echo $TERM $COLORTERM\n")
        look.until("/dev/pts/")
        look.until("login_shell")
        look.until("on")
        look.until("xterm-256color truecolor")
        look.type("bash -c 'echo now it runs $((40 + 2)); exec sleep 1000'\n")
        look.until("now it runs 42")
        look.type("\x03")
        look.until("ready> ")
        look.type("echo code $?\n")
        look.until("code 130")


def test_it_goes_on_without_a_browser_and_is_shown_to_the_next_one(lfg):
    with lfg.look("claude") as look:
        look.until("claude in")
        look.type("before\n")
        look.until("you said before")
    with lfg.look("claude") as look:
        assert look.told_of("replay")["bytes"] > 0
        look.until("you said before")
        look.type("after\n")
        assert b"claude in" not in look.until("you said after"), "it was started again"


def test_the_replay_is_the_end_of_the_output_in_the_modes_of_its_beginning(lfg):
    with lfg.look("pi") as look:
        look.until("line 0040000 of many")
    with lfg.look("pi") as look:
        told = look.told_of("replay")["bytes"]
        replay = look.until("line 0040000 of many")
        assert KEPT_BYTES * 0.9 < told <= KEPT_BYTES + 100
        modes, first = re.match(rb"((?:\x1b\[\?\d+[hl])+)(line \d{7} of many)\r\n", replay).groups()
        assert sorted(re.findall(rb"\d+[hl]", modes)) == [b"1002h", b"1006h", b"1049h", b"25l"]
        assert replay.count(b"line") == 40001 - int(first.split()[1])
        look.type("\n\n")
        look.told_of("state", state="exited")


def test_a_browser_that_hangs_neither_stops_a_program_nor_fills_the_memory(lfg):
    with lfg.look("codex") as hanging, lfg.look("codex") as reading:
        hanging.hangs = True
        hanging.socket.settimeout(1)
        reading.until("THE-END")
        with pytest.raises(websocket.WebSocketTimeoutException):
            hanging.until("THE-END")
        missed = hanging.shown
        assert len(missed) < UNREAD_BYTES + 2 * KEPT_BYTES < FLOODED_BYTES
        hanging.hangs = False
        hanging.shown = b""
        hanging.say(type="read", bytes=len(missed))
        hanging.socket.settimeout(30)
        hanging.until("THE-END")
        assert [message["type"] for message in hanging.told].count("replay") == 2
        reading.type("both\n")
        reading.until("both")
        hanging.until("both")
        assert max(*reading.frames, *hanging.frames) <= FRAME_BYTES
    assert lfg_memory_mb(lfg) < 200


def lfg_memory_mb(lfg) -> float:
    with open(f"/proc/{lfg.process.pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def test_the_browser_that_was_used_last_decides_the_size(lfg):
    with lfg.look("claude", 100, 30) as first:
        first.until("at 30 100")
        with lfg.look("claude", 60, 20) as second:
            first.until("20 60")
            assert not first.told_of("size", cols=60)["yours"]
            assert second.told_of("size", cols=60)["yours"]
            first.say(type="resize", cols=100, rows=30)
            second.until("30 100")
            assert not second.told_of("size", cols=100)["yours"]
        with lfg.look("claude", 50, 10):
            first.until("10 50")
        first.until("30 100")
        first.told_of("size", cols=100, yours=True)


def test_all_that_a_program_shows_before_its_end_comes_and_it_can_be_started_again(lfg):
    with lfg.look("shell") as look:
        look.type("exec bash -c 'head -c 300000 /dev/zero | tr \"\\0\" x; echo LAST; exit 7'\n")
        shown = look.until("LAST\r\n")
        assert shown.count(b"x") >= 300000
        look.told_of("state", state="exited", exitCode=7)
        assert lfg.tabs()["shell"] | {"state": "exited", "exitCode": 7} == lfg.tabs()["shell"]
        look.say(type="start")
        look.told_of("state", state="running")
        look.type("echo $((6 * 7))\n")
        look.until("42")
        look.type("kill -9 $$\n")
        told = look.told_of("state", state="exited")
        assert told["exitCode"] == 137 and told["reason"] == "shell was ended by SIGKILL."


def test_a_program_that_is_not_there_is_said_so(lfg):
    (lfg.project.parent / "bin/claude").unlink()
    with lfg.look("claude") as look:
        told = look.told_of("state", state="exited")
        assert told["exitCode"] == 127
        assert told["reason"] == "claude is not installed in this sandbox."


def test_further_tabs_up_to_eight_which_end_what_runs_in_them(lfg):
    made = [lfg.change("POST", "/api/tabs", json={"program": "shell"}) for _ in range(4)]
    assert [answer.status_code for answer in made] == [201, 201, 201, 409]
    assert made[-1].json()["error"] == "There are 8 tabs; close one first."
    with lfg.look("shell-3") as look:
        look.type("trap '' HUP; echo pid $$ ok\n")
        found = None
        while not found:
            look.step()
            found = re.search(rb"pid (\d+) ok", look.shown)
        pid = int(found[1])
        assert lfg.change("DELETE", "/api/tabs/shell-3").status_code == 200
        look.told_of("closed")
    assert "shell-3" not in lfg.tabs()
    assert eventually(lambda: not os.path.exists(f"/proc/{pid}"), 30), "it ignores a lost line"
    assert lfg.change("DELETE", "/api/tabs/shell").status_code == 404, "one of the first five"
    assert lfg.connecting("/ws/terminal/shell-3", Origin=lfg.origin) == 404


def test_typing_into_a_program_that_reads_nothing_has_an_end(lfg):
    with lfg.look("opencode") as look:
        look.until("ready")
        for _ in range(30):
            look.socket.send_binary(b"x" * 60_000)
        with pytest.raises(AssertionError, match="The program reads nothing"):
            while True:
                look.step()
    assert lfg_memory_mb(lfg) < 200
    with lfg.look("opencode") as look:
        look.until("ready")


@pytest.mark.parametrize("message", ["", "[]", "null", "{", '{"type":"resize","cols":0,"rows":1}',
                                     '{"type":"resize","cols":1e9,"rows":9}', '{"type":"read"}'])
def test_a_message_that_means_nothing_ends_the_connection(lfg, message):
    with lfg.look("shell") as look:
        look.socket.send(message)
        with pytest.raises(AssertionError, match="No such message"):
            while True:
                look.step()
    session = lfg.socket("/ws/session")
    session.send("ping")
    assert "pong" in [session.recv() for _ in range(3)]
    session.send(message)
    assert session.recv_data()[0] == websocket.ABNF.OPCODE_CLOSE
    session.shutdown()


def test_its_end_is_the_end_of_what_runs_in_it(lfg, tmp_path):
    with lfg.look("claude") as look:
        look.until("claude in")
    children = f"/proc/{lfg.process.pid}/task/{lfg.process.pid}/children"
    with open(children, encoding="ascii") as found:
        child, = found.read().split()
    os.kill(lfg.process.pid, signal.SIGTERM)
    assert lfg.process.wait(30) == 0
    assert eventually(lambda: not os.path.exists(f"/proc/{child}"), 30)
    lfg.process.poll = lambda: None  # this once the end was asked for
