"""A connection that an exec keeps, at both ends: the next request goes on it, if it is good; none
is lost, and none is run twice."""
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from guest.agent import connection as agent_connection
from guest.agent.connection import Connection
from guest.agent.loop import Loop
from guest.agent.protocol import (
    FAILURE,
    REQUEST,
    RESULT,
    STDOUT,
    decode_json,
    encode_frame,
    encode_json,
)
from guest.client import caller
from guest.client.agent_client import AgentClient
from guest.client.conversation import has_input
from guest.client.dialing import dial
from guest.client.errors import AgentProtocolError, AgentRefused, AgentUnreachable
from tests.host.agent_process import TOKEN, RunningAgent
from tests.host.agent_wire import Wire
from tests.stack.waiting import eventually, is_alive
from tests.unit.guest.conftest import EXEC_REPLY

KEPT = encode_json(RESULT, EXEC_REPLY | {"kept": True})


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The connections that clients of this process have made."""
    made: list[socket.socket] = []

    def and_count(*arguments: object) -> socket.socket:
        made.append(dial(*arguments))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(caller, "dial", and_count)
    return made


@pytest.fixture
def guest_of() -> Iterator[Callable[..., AgentClient]]:
    """Make a guest that answers each request, on whichever connection, with the next of some
    replies, and hangs up after an empty one; `heard` of its client are the requests."""
    ends = []

    def make(*replies: bytes) -> AgentClient:
        listener, left, heard = socket.create_server(("127.0.0.1", 0)), list(replies), []
        ends.append(listener)

        def answer(peer: socket.socket) -> None:
            while left and (received := peer.recv(65536)):
                heard.append(decode_json(received[5:])["argv"])
                reply = left.pop(0)
                peer.sendall(reply)
                if not reply:
                    return

        def serve() -> None:
            # a client may reset what it wants no more, and a test may end before it asks again
            with contextlib.suppress(OSError):
                while left:
                    with listener.accept()[0] as peer:
                        answer(peer)

        threading.Thread(target=serve, daemon=True).start()
        client = AgentClient("127.0.0.1", listener.getsockname()[1], "token")
        client.heard = heard  # type: ignore[attr-defined]
        return client

    yield make
    for listener in ends:
        listener.close()


def test_the_next_command_goes_on_it(agent: RunningAgent, client: AgentClient, dialled) -> None:
    said = [client.exec(["echo", word], keep=True).stdout for word in ("one", "two", "three")]
    assert said == [b"one\n", b"two\n", b"three\n"] and len(dialled) == 1
    client.close()
    assert client.exec(["echo", "four"], keep=True).stdout == b"four\n" and len(dialled) == 2
    client.close()
    assert [each.fileno() for each in dialled] == [-1, -1]


def test_a_call_that_does_not_keep_it_is_its_last(client: AgentClient, dialled) -> None:
    client.exec(["true"], keep=True)
    client.exec(["true"])
    client.exec(["true"])
    assert len(dialled) == 2 and all(each.fileno() == -1 for each in dialled)


def test_each_command_has_its_own_output_and_limits(client: AgentClient, dialled) -> None:
    assert client.exec(["sleep", "60"], timeout_ms=100, keep=True).timed_out
    assert client.exec(shell="echo 123456", cap_bytes=3, keep=True).stdout == b"123"
    large = client.exec(shell="head -c 3000000 /dev/zero; echo end >&2", keep=True)
    assert len(large.stdout) == 3_000_000 and large.stderr == b"end\n"
    assert client.exec(["no-such-program"], keep=True).exit_code == 127
    assert client.exec(["sleep", "0"], detached=True, keep=True).log_path
    assert client.exec(["true"], keep=True).stdout == b"" and len(dialled) == 1
    client.close()


def test_a_refusal_ends_it(client: AgentClient, dialled) -> None:
    client.exec(["true"], keep=True)
    with pytest.raises(AgentRefused):
        client.exec(["true"], cwd="/nowhere/at/all", keep=True)
    assert client.exec(["true"]).exit_code == 0 and len(dialled) == 2


def test_one_that_the_guest_has_closed_is_not_used(guest_of, dialled) -> None:
    client = guest_of(KEPT, b"", KEPT)
    client.exec(["first"], keep=True)
    with pytest.raises(AgentUnreachable):
        client.exec(["lost"], keep=True)
    client.exec(["next"], keep=True)
    assert client.heard == [["first"], ["lost"], ["next"]], "a command was sent twice"
    assert len(dialled) == 2
    client.close()


def test_an_agent_that_keeps_none_is_connected_to_each_time(guest_of, dialled) -> None:
    """As those in guests made before connections were kept."""
    client = guest_of(encode_json(RESULT, EXEC_REPLY))
    client.exec(["first"], keep=True)
    assert dialled[0].fileno() == -1


@pytest.mark.parametrize("unasked", [KEPT, b"\x05", encode_frame(STDOUT, b"mine")],
                         ids=["result", "byte", "output"])
def test_what_a_guest_says_unasked_answers_nothing(guest_of, dialled, unasked: bytes) -> None:
    client = guest_of(KEPT + unasked, KEPT)
    client.exec(["first"], keep=True)
    assert eventually(lambda: dialled[0].fileno() == -1 or has_input(dialled[0]))
    assert client.exec(["second"], keep=True).stdout == b"" and len(dialled) == 2
    client.close()


def test_a_lie_ends_it(guest_of, dialled) -> None:
    client = guest_of(KEPT, encode_json(RESULT, {"kept": True}), KEPT)
    client.exec(["true"], keep=True)
    with pytest.raises(AgentProtocolError):
        client.exec(["true"], keep=True)
    assert [each.fileno() for each in dialled] == [-1]


def test_each_request_needs_the_token(agent: RunningAgent) -> None:
    with Wire(agent.port) as wire:
        wire.request("exec", TOKEN, argv=["true"], keep=True)
        kind, reply = wire.kept_answer()
        assert kind == RESULT and reply["kept"] is True
        wire.request("exec", TOKEN[:-1], shell="touch ran", keep=True)
        kind, reply = wire.answer()
        assert (kind, reply["code"]) == (FAILURE, "unauthorized")
    assert not (agent.root / "home/user/ran").exists()


@pytest.mark.parametrize("keep", [None, False, 1, "true"], ids=repr)
def test_the_agent_keeps_none_that_nobody_asked_it_to(agent: RunningAgent, keep: object) -> None:
    with Wire(agent.port) as wire:
        wire.request("exec", TOKEN, argv=["true"], keep=keep)
        kind, reply = wire.answer()  # it has closed
        assert kind == RESULT and "kept" not in reply


def test_what_a_child_serves_is_not_kept(agent: RunningAgent) -> None:
    with Wire(agent.port) as wire:
        wire.request("read", TOKEN, path="/opt/svc/initial-token", maxBytes=100, keep=True)
        kind, reply = wire.answer()
        assert kind == RESULT and "kept" not in reply


def test_hanging_up_kills_what_runs_on_it(agent: RunningAgent) -> None:
    with Wire(agent.port) as wire:
        wire.request("exec", TOKEN, argv=["true"], keep=True)
        wire.kept_answer()
        wire.request("exec", TOKEN, shell="echo $$ > pid; sleep 600", keep=True)
        pid_file = agent.root / "home/user/pid"
        assert eventually(lambda: pid_file.exists() and pid_file.stat().st_size > 1)
    pid = int(pid_file.read_text())
    assert eventually(lambda: not is_alive(pid))


def test_the_agent_waits_as_long_for_the_next_request_as_for_the_first(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_connection, "REQUEST_WAIT_S", 0.2)
    loop, closed = Loop(), list[Connection]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs, ours = socket.create_connection(listener.getsockname()), listener.accept()[0]

    def serve(connection: Connection, request: dict) -> None:
        monkeypatch.setattr(agent_connection, "REQUEST_WAIT_S", 0.4)
        connection.finish(RESULT, {})

    with theirs:
        Connection(loop, ours, serve, closed.append)
        theirs.sendall(encode_json(REQUEST, {"keep": True}))
        began = time.monotonic()
        while not closed:
            loop._turn()
        assert theirs.recv(100) == encode_json(RESULT, {"kept": True})
        assert 0.4 <= time.monotonic() - began < 20 and theirs.recv(100) == b""
