"""A connection that an exec keeps, at both ends: the next request goes on it, if it is good; none
is lost, and none is run twice."""
import socket
import time
from collections.abc import Iterator

import pytest

from guest.agent import connection as agent_connection
from guest.agent.connection import Connection
from guest.agent.loop import Loop
from guest.agent.protocol import FAILURE, REQUEST, RESULT, STDOUT, encode_frame, encode_json
from guest.client import caller
from guest.client.agent_client import AgentClient
from guest.client.conversation import has_input
from guest.client.dialing import dial
from guest.client.errors import AgentProtocolError, AgentRefused, AgentUnreachable
from guest.client.identity import GuestIdentity
from tests.fakes.hostile_guest import HostileGuest, serving
from tests.host.agent_process import TOKEN, RunningAgent
from tests.host.agent_wire import Wire
from tests.stack.waiting import becomes, eventually, until
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
def guest() -> Iterator[HostileGuest]:
    """One that keeps each connection and says so."""
    with serving() as server:
        server.keeps, server.reply = True, KEPT
        yield server


@pytest.fixture
def its_client(guest: HostileGuest) -> Iterator[AgentClient]:
    client = AgentClient("127.0.0.1", guest.server_address[1], "token")
    yield client
    client.close()


def test_an_adoption_can_keep_it_too(agent: RunningAgent, dialled) -> None:
    identity = GuestIdentity("a-token-of-its-own-0123456789", "abc", renew=False, env={})
    client = agent.client(TOKEN)
    client.adopt(identity)
    client.adopt(identity, keep=True)
    assert client.exec(["echo", "one"], keep=True).stdout == b"one\n" and len(dialled) == 2
    client.adopt(identity, keep=True)
    client.close()
    assert all(each.fileno() == -1 for each in dialled)


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


def test_one_that_the_guest_has_closed_is_not_used(guest, its_client, dialled) -> None:
    guest.keeps = False
    its_client.exec(["first"], keep=True)
    assert eventually(lambda: has_input(dialled[0]))
    its_client.exec(["second"], keep=True)
    assert guest.asked == len(dialled) == 2


def test_what_was_sent_is_never_sent_again(guest, its_client) -> None:
    its_client.exec(["first"], keep=True)
    guest.reply = b""  # and it hangs up
    with pytest.raises(AgentUnreachable):
        its_client.exec(["lost"], keep=True)
    guest.reply = KEPT
    its_client.exec(["next"], keep=True)
    assert [b'"lost"' in piece for piece in guest.heard] == [False, True, False]
    assert guest.connected == 2


def test_an_agent_that_keeps_none_is_connected_to_each_time(guest, its_client, dialled) -> None:
    """As those in guests made before connections were kept."""
    guest.keeps, guest.reply = False, encode_json(RESULT, EXEC_REPLY)
    its_client.exec(["first"], keep=True)
    assert dialled[0].fileno() == -1


@pytest.mark.parametrize("unasked", [KEPT, b"\x05", encode_frame(STDOUT, b"mine")],
                         ids=["result", "byte", "output"])
def test_what_a_guest_says_unasked_answers_nothing(guest, its_client, dialled,
                                                   unasked: bytes) -> None:
    guest.reply = KEPT + unasked
    its_client.exec(["first"], keep=True)
    assert eventually(lambda: dialled[0].fileno() == -1 or has_input(dialled[0]))
    guest.reply = KEPT
    assert its_client.exec(["second"], keep=True).stdout == b"" and len(dialled) == 2


def test_what_it_says_before_the_next_command_answers_nothing_either(guest, its_client) -> None:
    ours, theirs = socket.socketpair()
    its_client._kept = ours
    with theirs:
        theirs.sendall(encode_frame(STDOUT, b"mine") + KEPT)
        assert its_client.exec(["true"], keep=True).stdout == b""
    assert guest.asked == 1 and ours.fileno() == -1


def test_a_lie_ends_it(guest, its_client, dialled) -> None:
    its_client.exec(["true"], keep=True)
    guest.reply = encode_json(RESULT, {"kept": True})
    with pytest.raises(AgentProtocolError):
        its_client.exec(["true"], keep=True)
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


def test_hanging_up_leaves_what_runs_on_it(agent: RunningAgent) -> None:
    home = agent.root / "home/user"
    with Wire(agent.port) as wire:
        wire.request("exec", TOKEN, argv=["true"], keep=True)
        wire.kept_answer()
        held = agent.descriptors()
        wire.request("exec", TOKEN, keep=True, shell="touch begun; until [ -e gate ]; do sleep"
                     " 0.02; done; echo more && touch whole")
        until((home / "begun").exists)
    becomes(agent.descriptors, held + 2)  # without the connection
    (home / "gate").touch()
    until((home / "whole").exists)
    becomes(agent.descriptors, held - 1)


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
