"""What an agent does with connections that break, lie, stall or flood: it must still serve the
others."""
import errno
import os
import signal
import socket
from pathlib import Path

import pytest

from guest.agent.connection import Connection
from guest.agent.loop import Loop
from guest.agent.protocol import (
    DATA,
    FAILURE,
    MAX_PAYLOAD_BYTES,
    REQUEST,
    RESULT,
    STDOUT,
    encode_frame,
    encode_json,
)
from tests.host.agent_process import TOKEN, RunningAgent
from tests.host.agent_wire import Wire
from tests.stack.waiting import becomes, eventually, is_alive, until

RETRANSMIT, KEEPALIVE = 1, 2  # of /proc/net/tcp
# Each line counts a mebibyte that the command could get rid of.
COUNTING = "for n in $(seq 80); do head -c 1048576 /dev/zero; echo $n > new; mv new counted; done"
GARBAGE = {
    "not a frame": b"GET / HTTP/1.1\r\n\r\n",
    "unknown type": bytes([99, 0, 0, 0, 0]),
    "too long": bytes([REQUEST]) + (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big"),
    "longest length": bytes([REQUEST]) + b"\xff" * 4,
    "not JSON": encode_frame(REQUEST, b"{"),
    "not an object": encode_frame(REQUEST, b"[1]"),
    "more than JSON": encode_frame(REQUEST, b'{"op":"ping"}{}'),
    "deep nesting": encode_frame(REQUEST, b"[" * 500_000),
    "not UTF-8": encode_frame(REQUEST, b"\xff\xfe{}"),
    "data first": encode_frame(DATA, b"x"),
    "nothing in it": encode_frame(REQUEST),
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE)
def test_garbage_ends_its_own_connection_only(agent: RunningAgent, sent: bytes) -> None:
    with Wire(agent.port) as wire:
        wire.socket.sendall(sent)
        assert wire.frames() == []
    assert agent.client().ping().adopted is None


@pytest.mark.parametrize(
    "token", ["", "x", TOKEN + "x", TOKEN[:-1],
              TOKEN.upper(), None, 5, ["a"], "\ud800"], ids=repr)
def test_a_wrong_token_is_unauthorized_and_nothing_happens(agent: RunningAgent,
                                                           token: object) -> None:
    with Wire(agent.port) as wire:
        wire.request("exec", token, shell="touch /tmp/never", argv=None, cwd="/home/user")
        kind, reply = wire.answer()
    assert (kind, reply["code"]) == (FAILURE, "unauthorized")


def test_a_wrong_token_does_not_run_the_command(agent: RunningAgent) -> None:
    with Wire(agent.port) as wire:
        wire.request("exec", "wrong", shell="touch ran")
        wire.frames()
    agent.client().exec(["true"])
    assert not (agent.root / "home/user/ran").exists()


@pytest.mark.parametrize("operation", ["", "nonsense", None, 5, [], {}], ids=repr)
def test_an_unknown_operation_is_a_bad_request(agent: RunningAgent, operation: object) -> None:
    with Wire(agent.port) as wire:
        wire.socket.sendall(encode_json(REQUEST, {"op": operation, "token": TOKEN}))
        kind, reply = wire.answer()
    assert (kind, reply["code"]) == (FAILURE, "bad_request")


@pytest.mark.parametrize(
    "request_fields",
    [
        {}, {"argv": []}, {"argv": "ls"}, {"argv": [""]}, {"argv": [1]}, {"argv": ["a\0b"]},
        {"shell": 5}, {"argv": ["ls"], "shell": "ls"}, {"argv": ["ls"], "env": ["A"]},
        {"argv": ["ls"], "env": {"A": 1}}, {"argv": ["ls"], "env": {"A=B": "x"}},
        {"argv": ["ls"], "env": {"": "x"}}, {"argv": ["ls"], "timeoutMs": 0},
        {"argv": ["ls"], "timeoutMs": "1"}, {"argv": ["ls"], "timeoutMs": True},
        {"argv": ["ls"], "capBytes": -1}, {"argv": ["ls"], "detached": "yes"},
        {"argv": ["ls"], "cwd": 1}, {"argv": ["\ud800"]},
    ],
    ids=str,
)
def test_malformed_commands_are_refused(agent: RunningAgent, request_fields: dict) -> None:
    with Wire(agent.port) as wire:
        wire.request("exec", TOKEN, **request_fields)
        kind, reply = wire.answer()
    assert (kind, reply["code"]) == (FAILURE, "bad_request")


def test_a_request_that_arrives_byte_by_byte_is_served(agent: RunningAgent) -> None:
    with Wire(agent.port) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode_json(REQUEST, {"op": "ping", "token": TOKEN}):
            wire.socket.sendall(bytes([byte]))
        assert wire.answer()[0] == RESULT


def test_others_are_served_while_some_say_nothing(agent: RunningAgent) -> None:
    silent = [Wire(agent.port) for _ in range(60)]
    for wire in silent[::2]:
        wire.socket.sendall(b"\x01\x00")
    assert agent.client().exec(["echo", "served"]).stdout == b"served\n"
    for wire in silent:
        wire.socket.close()


def test_resets_at_any_moment_do_not_end_the_agent(agent: RunningAgent) -> None:
    request = encode_json(REQUEST,
                          {"op": "exec", "token": TOKEN, "shell": "head -c 1000000 /dev/zero"})
    for length in (0, 1, 5, 20, len(request)):
        for _ in range(10):
            wire = Wire(agent.port)
            wire.socket.sendall(request[:length])
            wire.reset()
    assert agent.client().exec(["echo", "alive"]).stdout == b"alive\n"


def test_a_reset_in_the_middle_of_a_reply_does_not_end_the_agent(agent: RunningAgent) -> None:
    for operation in ({"op": "exec", "shell": "yes"}, {"op": "read", "path": "/home/user/big"}):
        (agent.root / "home/user/big").write_bytes(bytes(20_000_000))
        wire = Wire(agent.port)
        wire.socket.sendall(encode_json(REQUEST, {**operation, "token": TOKEN}))
        assert wire.socket.recv(1000)
        wire.reset()
    assert agent.client().ping()


@pytest.mark.parametrize("politely", [True, False], ids=["close", "reset"])
def test_a_command_goes_on_without_its_peer_and_what_it_says_is_dropped(agent: RunningAgent,
                                                                        politely: bool) -> None:
    home, before = agent.root / "home/user", agent.descriptors()
    wire = Wire(agent.port)
    wire.request("exec", TOKEN, timeoutMs=600_000, shell="touch begun; until [ -e gate ]; do sleep"
                 " 0.02; done; head -c 3000000 /dev/zero && echo more >&2 && touch whole")
    until((home / "begun").exists)
    wire.socket.close() if politely else wire.reset()
    becomes(agent.descriptors, before + 3)  # of its end and its output, and no connection
    (home / "gate").touch()
    until((home / "whole").exists)
    becomes(agent.descriptors, before)
    becomes(agent.children, [])


def test_a_command_that_is_held_back_goes_on_once_its_peer_is_gone(agent: RunningAgent) -> None:
    wire = Wire(agent.port)
    wire.request("exec", TOKEN, shell=COUNTING, capBytes=1 << 30, timeoutMs=600_000)
    assert _held_back_at(agent) < 40
    wire.reset()
    becomes((agent.root / "home/user/counted").read_text, "80\n")


def test_hanging_up_leaves_a_detached_command_alone(agent: RunningAgent) -> None:
    wire = Wire(agent.port)
    wire.request("exec", TOKEN, argv=["sleep", "600"], detached=True)
    pid = wire.answer()[1]["pid"]
    wire.reset()
    agent.client().exec(["true"])
    try:
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_peer_that_does_not_read_blocks_its_command_and_costs_no_memory(
        agent: RunningAgent) -> None:
    before = agent.resident_bytes()
    with Wire(agent.port) as wire:
        wire.request("exec", TOKEN, shell=COUNTING, capBytes=1 << 30)
        assert _held_back_at(agent) < 40, "the command was not held back"
        assert agent.resident_bytes() - before < 16 * 1024 * 1024
        frames = wire.frames()
    assert frames[-1][0] == RESULT
    assert sum(len(payload) for kind, payload in frames if kind == STDOUT) == 80 * 1024 * 1024


def _held_back_at(agent: RunningAgent) -> int:
    counted, last = agent.root / "home/user/counted", ""
    until(counted.exists)
    while last != (last := counted.read_text()):
        agent.client().exec(["sleep", "0.5"])
    return int(last)


def test_many_peers_that_do_not_read_cost_little_memory(agent: RunningAgent) -> None:
    before, descriptors = agent.resident_bytes(), agent.descriptors()
    stuck = [Wire(agent.port) for _ in range(50)]
    for wire in stuck:
        wire.request("exec", TOKEN, argv=["yes"], capBytes=1 << 30, timeoutMs=600_000)
    agent.client().exec(["sleep", "1"])
    assert agent.resident_bytes() - before < 50 * 1024 * 1024
    for wire in stuck:
        wire.reset()
    assert agent.client().exec(["echo", "served"]).stdout == b"served\n"
    assert agent.resident_bytes() - before < 50 * 1024 * 1024
    for pid in agent.children():
        os.kill(pid, signal.SIGKILL)
    becomes(agent.descriptors, descriptors)
    becomes(agent.children, [])


def test_input_after_a_request_that_takes_none_ends_the_connection(agent: RunningAgent) -> None:
    with Wire(agent.port) as wire:
        wire.request("exec", TOKEN, argv=["sleep", "600"])
        wire.socket.sendall(encode_frame(DATA, b"more"))
        assert wire.frames() == []


def test_more_connections_than_are_served_at_once_wait_their_turn(agent: RunningAgent) -> None:
    crowd = [Wire(agent.port) for _ in range(600)]
    for wire in crowd[:550]:
        wire.socket.close()
    for wire in crowd[550:]:
        wire.request("ping", TOKEN)
    assert all(wire.answer()[0] == RESULT for wire in crowd[550:])
    for wire in crowd[550:]:
        wire.socket.close()


def test_slow_work_does_not_keep_others_waiting(agent: RunningAgent) -> None:
    with Wire(agent.port) as slow:
        slow.request("wait_port", TOKEN, port=1, timeoutMs=600_000)
        slow.socket.settimeout(0.5)
        assert agent.client().exec(["echo", "meanwhile"]).stdout == b"meanwhile\n"
        with pytest.raises(TimeoutError):
            slow.socket.recv(1)


def test_slow_work_ends_when_nobody_waits_for_it(agent: RunningAgent) -> None:
    wire = Wire(agent.port)
    wire.request("wait_port", TOKEN, port=1, timeoutMs=600_000)
    assert eventually(lambda: agent.children() != [])
    wire.socket.close()
    assert eventually(
        lambda: not agent.children()), "it waits for a port although its caller is gone"


def test_more_slow_work_than_runs_at_once_is_all_done(agent: RunningAgent) -> None:
    crowd = [Wire(agent.port) for _ in range(80)]
    for wire in crowd:
        wire.request("wait_port", TOKEN, port=agent.port, timeoutMs=60_000)
    assert [wire.answer() for wire in crowd] == [(RESULT, {"open": True})] * 80
    for wire in crowd:
        wire.socket.close()
    assert eventually(lambda: not agent.children()), "a child was left behind"


def test_a_connection_whose_peer_is_silent_is_asked_after_half_a_minute(
        agent: RunningAgent) -> None:
    with Wire(agent.port) as wire:
        wire.request("wait_port", TOKEN, port=9, timeoutMs=5000)  # of which nothing is answered yet
        timer, ticks = _timer(agent.port, wire.socket.getsockname()[1])
    assert timer == KEEPALIVE and ticks <= 30 * os.sysconf("SC_CLK_TCK")


def _timer(port: int, peer_port: int) -> tuple[int, int]:
    """The timer of the agent's end of a connection, and in how many ticks it is due; proc(5)."""
    while True:
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            ends = [int(end.partition(":")[2], 16) for end in fields[1:3]]
            timer, _, ticks = fields[5].partition(":")
            if ends == [port, peer_port] and int(timer) != RETRANSMIT:
                return int(timer), int(ticks, 16)


class _ResetOnceSent(socket.socket):
    """As after a reset that comes once the reply has been sent."""

    def shutdown(self, how: int) -> None:
        raise OSError(errno.ENOTCONN, "reset")


def test_a_peer_that_resets_once_it_was_answered_is_let_go_without_an_error(
        capfd: pytest.CaptureFixture[str]) -> None:
    loop, said, closed = Loop(), encode_json(RESULT, {}), list[Connection]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs, ours = socket.create_connection(listener.getsockname()), listener.accept()[0]
    with theirs:
        connection = Connection(loop, _ResetOnceSent(fileno=ours.detach()), lambda *_: None,
                                closed.append)
        connection.finish(RESULT, {})
        theirs.sendall(b"more")  # so that the turn has something to begin with
        loop._turn()
        assert theirs.recv(100) == said
    assert closed == [connection] and capfd.readouterr().err == ""
