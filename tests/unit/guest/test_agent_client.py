"""The host's client against guests that are late, silent, dying or hostile, each a few lines behind
a real socket."""
import socket
import threading
import time

import pytest

from bin.stack.free_ports import free_port
from guest.agent.protocol import (
    DATA,
    FAILURE,
    MAX_PAYLOAD_BYTES,
    REQUEST,
    RESULT,
    STDOUT,
    FrameReader,
    ProtocolError,
    encode_frame,
    encode_json,
)
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentProtocolError, AgentRefused, AgentTimeout, AgentUnreachable
from tests.host.agent_process import RunningAgent
from tests.unit.guest.conftest import EXEC_REPLY, sends, sends_for_ever


def says_nothing(peer: socket.socket) -> None:
    peer.recv(1)


LIES = {
    "unknown type": bytes([77, 0, 0, 0, 0]),
    "too long": bytes([RESULT]) + (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big"),
    "no JSON": encode_frame(RESULT, b"nonsense"),
    "no object": encode_frame(RESULT, b"[]"),
    "deep": encode_frame(RESULT, b"[" * 200_000),
    "other frame": encode_frame(REQUEST, b"{}"),
    "no exit code": encode_json(RESULT, {}),
    "text exit code": encode_json(RESULT, EXEC_REPLY | {"exitCode": "0"}),
    "huge exit code": encode_json(RESULT, EXEC_REPLY | {"exitCode": 1 << 80}),
    "boolean exit code": encode_json(RESULT, EXEC_REPLY | {"exitCode": True}),
    "text pid": encode_json(RESULT, EXEC_REPLY | {"pid": "1"}),
}


@pytest.mark.parametrize("sent", LIES.values(), ids=LIES)
def test_a_reply_that_is_not_the_protocol_is_an_error_of_its_own(guest_that, sent: bytes) -> None:
    with pytest.raises(AgentProtocolError):
        guest_that(sends(sent)).exec(["ls"])


@pytest.mark.parametrize(
    "sent", [b"", b"\x05", encode_frame(STDOUT, b"x"), encode_json(RESULT, EXEC_REPLY)[:-1]]
)
def test_a_reply_that_breaks_off_is_unreachable(guest_that, sent: bytes) -> None:
    with pytest.raises(AgentUnreachable):
        guest_that(sends(sent)).exec(["ls"])


def test_a_silent_guest_runs_into_the_deadline(guest_that) -> None:
    with pytest.raises(AgentTimeout):
        guest_that(says_nothing).ping(timeout_s=0.3)


def test_a_guest_that_trickles_cannot_stretch_the_deadline(guest_that) -> None:
    def trickle(peer: socket.socket) -> None:
        for byte in encode_frame(STDOUT, bytes(1000)):
            peer.sendall(bytes([byte]))
            time.sleep(0.05)

    with pytest.raises(AgentTimeout):
        guest_that(trickle).ping(timeout_s=0.5)


def test_an_endless_file_ends_at_the_limit(guest_that) -> None:
    with pytest.raises(AgentRefused) as refusal:
        guest_that(sends_for_ever(encode_frame(DATA, bytes(60_000)))).read_file(
            "/f", max_bytes=1_000_000)
    assert refusal.value.code == "too_large"


@pytest.mark.parametrize("size", [59_999, 60_001, "60000", None])
def test_an_archive_of_another_size_than_announced_is_no_archive(guest_that, size: object) -> None:
    sent = (encode_frame(DATA, bytes(60_000)), encode_json(RESULT, {"sizeBytes": size}))
    with pytest.raises(AgentProtocolError):
        list(guest_that(sends(*sent)).archive("/d", 10))


def test_an_archive_without_its_result_is_no_archive(guest_that) -> None:
    with pytest.raises(AgentUnreachable):
        list(guest_that(sends(encode_frame(DATA, bytes(60_000)))).archive("/d", 10))


def test_a_refusal_carries_code_and_sentence_cut_to_size(guest_that) -> None:
    with pytest.raises(AgentRefused) as refusal:
        guest_that(sends(encode_json(FAILURE, {"code": "failed", "message": "m" * 9000}))).ping()
    assert refusal.value.code == "failed" and len(refusal.value.message) == 2000


def test_a_guest_that_does_not_take_an_upload_runs_into_the_deadline(guest_that) -> None:
    def take_nothing(peer: socket.socket) -> None:
        time.sleep(5)

    with pytest.raises(AgentTimeout):
        guest_that(take_nothing).write_file("/f", bytes(50_000_000), timeout_s=0.5)


def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(AgentUnreachable):
        AgentClient("127.0.0.1", free_port(), "token").ping()


def test_waiting_for_a_guest_that_never_comes_ends_in_time() -> None:
    with pytest.raises(AgentTimeout):
        AgentClient("127.0.0.1", free_port(), "token").wait_ready(0.4)


def test_waiting_for_a_guest_whose_packets_are_lost_ends_in_time() -> None:
    # A listener with a full backlog drops SYNs, as a guest does whose network card is not running
    # yet.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        crowd = [socket.socket() for _ in range(8)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        with pytest.raises(AgentTimeout):
            AgentClient("127.0.0.1", full.getsockname()[1], "token").wait_ready(0.5)
        for one in crowd:
            one.close()


def test_a_guest_that_comes_late_is_found(agent: RunningAgent) -> None:
    port = free_port()

    def appear() -> None:
        time.sleep(0.3)
        with socket.create_server(("127.0.0.1", port)) as listener:
            while True:
                peer, _ = listener.accept()
                with peer:
                    if peer.recv(65536):
                        reply = {"agentVersion": "1", "bootId": "b", "adopted": None}
                        peer.sendall(encode_json(RESULT, reply))
                        return

    threading.Thread(target=appear, daemon=True).start()
    assert AgentClient("127.0.0.1", port, "token").wait_ready(20).boot_id == "b"


def test_waiting_for_a_guest_that_is_there_is_a_ping(agent: RunningAgent) -> None:
    assert agent.client().wait_ready(20) == agent.client().ping()


def test_wait_port_tells_open_from_closed(agent: RunningAgent) -> None:
    assert agent.client().wait_port(agent.port, 20) is True
    assert agent.client().wait_port(free_port(), 0.2) is False


def test_a_request_that_fits_no_frame_is_refused_before_it_is_sent(agent: RunningAgent) -> None:
    with pytest.raises(AgentRefused) as refusal:
        agent.client().exec(["echo", "x" * MAX_PAYLOAD_BYTES])
    assert refusal.value.code == "too_large"


def test_frames_survive_any_cutting_of_the_stream() -> None:
    frames = [(DATA, b""), (STDOUT, b"a" * 70_000), (RESULT, b"{}"), (DATA, b"end")]
    stream = b"".join(encode_frame(kind, payload) for kind, payload in frames)
    for step in (1, 3, 5, 64, 65_536, len(stream)):
        reader = FrameReader()
        found = []
        for start in range(0, len(stream), step):
            reader.feed(stream[start:start + step])
            found += list(reader.frames())
        assert found == frames and reader.rest() == b""


def test_a_payload_beyond_the_limit_cannot_be_encoded() -> None:
    assert len(encode_frame(DATA, bytes(MAX_PAYLOAD_BYTES))) == MAX_PAYLOAD_BYTES + 5
    with pytest.raises(ProtocolError):
        encode_frame(DATA, bytes(MAX_PAYLOAD_BYTES + 1))
