"""What an agent does of an adoption once it has answered, and what becomes of a guest in which that
fails."""
import base64
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest.agent import identity
from guest.agent.identity import Identity
from guest.agent.kernel import UntouchedKernel
from guest.agent.loop import Loop
from guest.agent.protocol import FAILURE, RESULT
from guest.agent.server import Agent
from tests.host.agent_process import TOKEN, start_agent, stop_agent
from tests.host.agent_wire import Wire


class _Refusing(UntouchedKernel):
    """A kernel that remembers the times it was told, and may refuse them, or a name."""

    refuses = refuses_name = False

    def __init__(self) -> None:
        self.told: list[int] = []

    def set_hostname(self, name: str) -> None:
        if self.refuses_name:
            raise RuntimeError("no such name")

    def set_clock(self, nanoseconds: int) -> None:
        if self.refuses:
            raise PermissionError("not this time")
        self.told.append(nanoseconds)


Ask = Callable[..., tuple[int, dict]]
ADOPTION = {"newToken": "a-token-of-its-own-0123456789", "sandboxId": "abc",
            "clockNs": 5_000_000_000, "entropy": base64.b64encode(bytes(64)).decode()}


@pytest.fixture
def kernel() -> _Refusing:
    return _Refusing()


@pytest.fixture
def ask(root: Path, kernel: _Refusing) -> Iterator[Ask]:
    """Asks an agent on `kernel`, whose loop turns meanwhile; returns kind and content of the
    answer."""
    loop = Loop()
    (root / "run/svc").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = Agent(loop, listener, Identity(TOKEN.encode(), None, {}), kernel, str(root))

        def ask(operation: str, **fields: object) -> tuple[int, dict]:
            with Wire(listener.getsockname()[1]) as wire:
                wire.request(operation, agent._identity.token.decode(), **fields)
                while not wire.is_answered():
                    loop._turn()
                answer = wire.answer()
            loop._turn()  # it closes its end
            return answer

        yield ask


def test_the_clock_is_set_before_the_next_request_or_there_is_none(
        ask: Ask, kernel: _Refusing) -> None:
    assert ask("adopt", **ADOPTION) == (RESULT, {"adopted": "abc"})
    assert len(kernel.told) == 1 and 0 <= kernel.told[0] - 5_000_000_000 < 60_000_000_000
    kernel.refuses = True
    ask("adopt", **ADOPTION)
    kind, reply = ask("disk")
    assert (kind, reply["code"]) == (FAILURE, "failed") and "not this time" in reply["message"]
    kernel.refuses = False
    ask("adopt", **ADOPTION)
    assert ask("disk")[0] == RESULT


def test_a_renewal_that_fails_once_it_is_answered_is_made_up_for_by_the_next_adoption(
        ask: Ask, root: Path, kernel: _Refusing) -> None:
    kernel.refuses_name = True
    renewal = {"renew": True, "machineId": "a" * 32, "hostKeyPrivate": "KEY", "hostKeyPublic": "K"}
    assert ask("adopt", **ADOPTION, **renewal) == (RESULT, {"adopted": "abc"})
    kind, reply = ask("disk")
    assert (kind, reply["code"]) == (FAILURE, "failed") and "no such name" in reply["message"]
    kernel.refuses_name = False
    files = {"etc/machine-id": "a" * 32 + "\n", "etc/ssh/ssh_host_ed25519_key": "KEY\n"}
    for name in files:
        (root / name).write_text("of the template")
    for _ in range(2):
        ask("adopt", **ADOPTION)
        assert ask("disk")[0] == RESULT
        assert {name: (root / name).read_text() for name in files} == files
        files = {name: "of the user" for name in files}  # who is asked only once
        for name, content in files.items():
            (root / name).write_text(content)
    assert not [path for path in open_files() if path.startswith(str(root))]


def test_an_agent_that_is_killed_once_it_has_answered_is_followed_by_one_that_renews(
        root: Path) -> None:
    (root / "run/svc").mkdir()
    (root / "etc/machine-id").write_text("of the source\n")
    state = root / "run/svc/identity.json"
    asked = {**ADOPTION, "renew": True, "machineId": "a" * 32, "hostKeyPrivate": "KEY",
             "hostKeyPublic": "K"}
    identity.adopt(asked, str(root), identity.Identity(TOKEN.encode(), None, {}), None)
    assert str(ADOPTION["newToken"]) in state.read_text()
    following = start_agent(root)
    try:
        assert following.client(str(ADOPTION["newToken"])).ping().adopted == "abc"
    finally:
        stop_agent(following)
    assert (root / "etc/machine-id").read_text() == "a" * 32 + "\n"
    assert (root / "etc/ssh/ssh_host_ed25519_key").read_text() == "KEY\n"
    assert sorted(json.loads(state.read_text())) == ["env", "sandboxId", "token"]


@pytest.mark.parametrize(("before", "token"), [
    ("", TOKEN), ('{"token":"of-one-who-was-killed","sandboxId":"abc","env":{}} of before"}',
                  "of-one-who-was-killed")], ids=["nothing yet", "the end of what was there"])
def test_an_agent_that_is_killed_while_it_writes_who_it_is_leaves_what_another_reads(
        root: Path, before: str, token: str) -> None:
    (root / "run/svc").mkdir()
    (root / "run/svc/identity.json").write_text(before)
    assert identity.recall(str(root), TOKEN.encode())[0].token == token.encode()


def open_files() -> list[str]:
    descriptors = Path("/proc/self/fd")
    return [os.readlink(each) for each in descriptors.iterdir() if each.is_symlink()]
