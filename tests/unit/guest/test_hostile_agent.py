"""The host's client against guests that send more than they were asked for, or what is dear to take
and cheap to send."""
import socket
import sys
import time

import pytest

from guest.agent.protocol import DATA, FAILURE, RESULT, STDERR, STDOUT, encode_frame, encode_json
from guest.client import frame_budget
from guest.client.conversation import Conversation
from guest.client.deadline import Deadline
from guest.client.dialing import dial
from guest.client.errors import AgentProtocolError, AgentTimeout
from tests.host.agent_process import RunningAgent
from tests.unit.guest.conftest import EXEC_REPLY, sends, sends_for_ever


@pytest.mark.parametrize("payload", [b"x" * 60_000, b"x"], ids=["large", "one byte"])
@pytest.mark.parametrize("kind", [STDOUT, STDERR])
def test_more_output_than_asked_for_is_not_the_protocol(guest_that, kind, payload) -> None:
    with pytest.raises(AgentProtocolError, match="more output than it was asked for"):
        guest_that(sends_for_ever(encode_frame(kind, payload) * 10)).exec(["ls"], cap_bytes=1000)


def test_output_without_room_is_cut_there_and_marked(guest_that) -> None:
    sent = [encode_frame(STDOUT, b"x" * 600) for _ in range(4)]
    sent += [encode_frame(STDERR, b"y" * 100), encode_json(RESULT, EXEC_REPLY)]
    room = iter([True, True, False, True])
    result = guest_that(sends(*sent)).exec(["ls"], cap_bytes=2400, take=lambda _: next(room))
    assert len(result.stdout) == 1200 and result.stdout_truncated
    assert result.stderr == b"y" * 100 and not result.stderr_truncated


CHEAP_TO_SEND = {
    "empty frames": encode_frame(STDOUT), "one byte frames": encode_frame(STDOUT, b"x"),
    "small frames": encode_frame(STDERR, b"x" * 40),
}


@pytest.mark.parametrize("frame", CHEAP_TO_SEND.values(), ids=CHEAP_TO_SEND)
def test_frames_that_cost_more_than_they_bring_are_not_the_protocol(guest_that,
                                                                    frame: bytes) -> None:
    began = time.process_time()
    with pytest.raises(AgentProtocolError, match="frame"):
        guest_that(sends_for_ever(frame * 1000)).exec(["ls"], timeout_ms=600_000)
    assert time.process_time() - began < 5, "it went on reading"


def test_an_archive_of_empty_frames_is_not_the_protocol(guest_that) -> None:
    with pytest.raises(AgentProtocolError, match="empty frame"):
        list(guest_that(sends_for_ever(encode_frame(DATA) * 1000)).archive("/d", 600))


@pytest.mark.parametrize("kind", [RESULT, FAILURE])
def test_a_result_that_no_agent_of_ours_sends_is_not_built(guest_that, kind: int) -> None:
    lists = b'{"exitCode":[' + b"[]," * 30_000 + b"[]]}"
    with pytest.raises(AgentProtocolError, match="result of"):
        guest_that(sends(encode_frame(kind, lists))).exec(["ls"])


def test_a_guest_that_drips_single_bytes_is_looked_at_a_hundred_times_a_second(guest_that) -> None:
    def drip(peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            peer.sendall(encode_frame(STDOUT, b"x"))
            time.sleep(0.0002)

    looks = 0

    class Counting(Conversation):
        def _receive(self) -> bytes:
            nonlocal looks
            looks += 1
            return super()._receive()

    client = guest_that(drip)
    with pytest.raises((AgentTimeout, AgentProtocolError)):
        with Counting(dial(client._address, Deadline(1.0), 1.0), Deadline(1.0)) as conversation:
            conversation.ask({"op": "exec"})
            for _ in conversation.frames():
                pass
    assert looks < 300


@pytest.mark.parametrize("where", ["1", "2", "number % 2 + 1"])
def test_a_program_that_prints_short_lines_all_the_time_is_heard_out(
        agent: RunningAgent, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(frame_budget, "FRAMES_FREE", 300)
    program = (f"import os, time\nfor number in range(5000):\n    os.write({where}, b'line\\n')\n"
               "    until = time.perf_counter() + 0.00015\n"
               "    while time.perf_counter() < until: pass")
    result = agent.client().exec([sys.executable, "-c", program])
    assert result.stdout + result.stderr == b"line\n" * 5000


def test_a_program_that_prints_byte_by_byte_is_heard_out(agent: RunningAgent) -> None:
    program = "import os\nfor _ in range(20_000): os.write(1, b'.')"
    result = agent.client().exec([sys.executable, "-c", program])
    assert result.stdout == b"." * 20_000 and not result.stdout_truncated
