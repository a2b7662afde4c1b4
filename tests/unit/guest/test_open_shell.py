"""The host's side of an open shell, against guests that do what a test tells them, behind real
sockets."""
import itertools
import socket
import threading

import pytest

from guest.agent.protocol import (
    CONTROL,
    DATA,
    FAILURE,
    RESULT,
    STDERR,
    STDOUT,
    FrameReader,
    encode_frame,
    encode_json,
)
from guest.client.errors import AgentProtocolError, AgentRefused, AgentUnreachable
from guest.client.frame_budget import StreamBudget
from guest.client.open_shell import PIECE_BYTES
from tests.stack.waiting import eventually
from tests.unit.guest.conftest import sends, sends_for_ever

OPENED = encode_json(CONTROL, {"type": "opened"})
ENDED = encode_json(RESULT, {"exitCode": 3})


def test_output_comes_in_pieces_and_the_exit_code_ends_it(guest_that) -> None:
    sent = [OPENED, encode_frame(STDOUT, b"a" * 60_000), encode_frame(STDOUT, b"b"), ENDED]
    with guest_that(sends(*sent)).open_shell(80, 24) as shell:
        pieces = list(shell.output())
        assert b"".join(pieces) == b"a" * 60_000 + b"b"
        assert max(map(len, pieces)) <= PIECE_BYTES
        assert shell.exit_code == 3 and shell.receive() is None


def test_what_is_typed_and_told_arrives_in_its_order(guest_that) -> None:
    seen: list[tuple[int, bytes]] = []

    def listen(peer: socket.socket) -> None:
        peer.sendall(OPENED)
        reader = FrameReader()
        while received := peer.recv(65536):
            reader.feed(received)
            seen.extend(reader.frames())
            if seen and seen[-1] == (DATA, b"end"):
                peer.sendall(ENDED)

    with guest_that(listen).open_shell(80, 24) as shell:
        shell.send("é".encode() * PIECE_BYTES)
        shell.resize(132, 50)
        shell.signal("INT")
        shell.send(b"end")
        assert list(shell.output()) == [] and shell.exit_code == 3
    typed = itertools.takewhile(lambda frame: frame[0] == DATA, seen)
    assert [len(payload) for _, payload in typed] == [PIECE_BYTES] * 2
    assert [payload for _, payload in seen[2:]] == [
        b'{"type":"resize","cols":132,"rows":50}', b'{"type":"signal","name":"INT"}', b"end"
    ]


@pytest.mark.parametrize("reply", [ENDED, encode_frame(STDOUT, b"x"), encode_frame(CONTROL, b"[]"),
                                   encode_json(CONTROL, {"type": "closed"})])
def test_a_guest_that_does_not_say_that_it_opened_is_not_the_protocol(guest_that, reply) -> None:
    with pytest.raises(AgentProtocolError):
        guest_that(sends(reply)).open_shell(80, 24)


def test_a_shell_that_is_refused_says_why(guest_that) -> None:
    refused = encode_json(FAILURE, {"code": "too_many", "message": "no"})
    with pytest.raises(AgentRefused, match="too_many"):
        guest_that(sends(refused)).open_shell(80, 24)


@pytest.mark.parametrize("sent", [
    encode_frame(DATA, b"x"), encode_frame(STDERR, b"x"), encode_frame(STDOUT), OPENED,
    encode_json(RESULT, {}), encode_json(RESULT, {"exitCode": -1}), encode_frame(RESULT, b"[]"),
    encode_json(RESULT, {"exitCode": 256}), encode_json(RESULT, {"exitCode": True}),
    bytes([77, 0, 0, 0, 0]), ENDED + encode_frame(STDOUT, b"x"),
])
def test_what_no_agent_of_ours_sends_ends_the_shell(guest_that, sent: bytes) -> None:
    with guest_that(sends(OPENED + sent)).open_shell(80, 24) as shell:
        with pytest.raises(AgentProtocolError):
            list(shell.output())


def test_a_connection_that_breaks_is_no_end_of_the_shell(guest_that) -> None:
    sent = OPENED + encode_frame(STDOUT, b"half")
    with guest_that(sends(sent)).open_shell(80, 24) as shell:
        assert shell.receive() == b"half"
        with pytest.raises(AgentUnreachable):
            shell.receive()
        shell.send(b"lost")
        assert shell.exit_code is None


def test_small_frames_without_end_are_not_the_protocol(guest_that) -> None:
    flood = sends_for_ever(encode_frame(STDOUT, b"x") * 1000)
    with guest_that(lambda peer: (peer.sendall(OPENED), flood(peer))).open_shell(80, 24) as shell:
        with pytest.raises(AgentProtocolError, match="too many frames"):
            for _ in shell.output():
                pass


def test_gigabytes_earn_no_right_to_flood_later() -> None:
    budget = StreamBudget()
    for _ in range(50_000):
        budget.count(STDOUT, 65536)
    with pytest.raises(AgentProtocolError):
        for _ in range(50_000):
            budget.count(STDOUT, 1)


def test_a_caller_who_does_not_read_holds_the_guest_back(guest_that) -> None:
    sent = 0

    def flood(peer: socket.socket) -> None:
        nonlocal sent
        peer.sendall(OPENED)
        while True:
            peer.sendall(encode_frame(STDOUT, b"x" * 50_000))
            sent += 50_000

    with guest_that(flood).open_shell(80, 24) as shell:
        assert shell.receive()
        seen = 0
        while eventually(lambda: sent != seen, 0.5):
            seen = sent
            assert seen < 20_000_000, "it is taken although nobody reads"


def test_hanging_up_frees_who_reads_and_who_sends(guest_that) -> None:
    stay = threading.Event()

    def stand_still(peer: socket.socket) -> None:
        peer.sendall(OPENED)
        stay.wait(30)

    with guest_that(stand_still).open_shell(80, 24) as shell:
        assert shell.receive(0.01) == b""
        sender = threading.Thread(target=lambda: shell.send(b"x" * 50_000_000))
        reader = threading.Thread(target=lambda: list(shell.output()))
        for thread in (sender, reader):
            thread.start()
        shell.hang_up()
        for thread in (sender, reader):
            thread.join(10)
            assert not thread.is_alive()
        assert shell.exit_code is None
    stay.set()


@pytest.mark.parametrize("size", [(0, 24), (80, 0), (-1, 24), (80, 5000)])
def test_a_size_no_terminal_has_is_an_error_of_the_caller(guest_that, size) -> None:
    with pytest.raises(ValueError, match="columns"):
        guest_that(sends()).open_shell(*size)
    with guest_that(sends(OPENED)).open_shell(80, 24) as shell:
        with pytest.raises(ValueError, match="columns"):
            shell.resize(*size)
        with pytest.raises(ValueError, match="passes on"):
            shell.signal("STOP")
