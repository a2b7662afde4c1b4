"""How an agent takes over the identity it is given."""
import base64
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from guest.agent.protocol import FAILURE
from guest.agent.server import REHEARSAL_AFTER_S
from guest.client.errors import AgentRefused, AgentUnauthorized
from guest.client.identity import GuestIdentity
from tests.host.agent_process import TOKEN, RunningAgent, start_agent, stop_agent
from tests.host.agent_wire import Wire
from tests.stack.waiting import until

IDENTITY = GuestIdentity(
    token="a-token-of-its-own-0123456789", sandbox_id="abc123", renew=True,
    env={"SVC_AI_URL": "http://ai", "B": "1"}, hostname="abc123", machine_id="0123456789abcdef" * 2,
    host_key_private="PRIVATE\n", host_key_public="PUBLIC",
)


def adopt(agent: RunningAgent, identity: GuestIdentity, token: str = TOKEN) -> None:
    """Adopt it, and wait until it takes the next request: what is renewed is so by then."""
    client = agent.client(token)
    client.adopt(identity)
    client.ping()


def test_the_new_token_replaces_the_old_one(agent: RunningAgent) -> None:
    client = agent.client()
    client.adopt(IDENTITY)
    assert client.ping().adopted == "abc123"
    with pytest.raises(AgentUnauthorized):
        agent.client(TOKEN).ping()


def test_renewal_writes_the_identity_of_a_clone(agent: RunningAgent) -> None:
    (agent.root / "etc/ssh/ssh_host_rsa_key").write_text("of the template")
    adopt(agent, IDENTITY)
    etc = agent.root / "etc"
    assert (etc / "machine-id").read_text() == f"{IDENTITY.machine_id}\n"
    assert (etc / "hostname").read_text() == "abc123\n"
    assert "127.0.1.1 abc123\n" in (etc / "hosts").read_text()
    assert (etc / "ssh/ssh_host_ed25519_key").read_text() == "PRIVATE\n"
    assert (etc / "ssh/ssh_host_ed25519_key").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(etc / "ssh")) == ["ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"]


HOSTS = {
    "none": (None, b"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 abc123\n"),
    "first": (b"127.0.1.1 sandbox\n10.1.2.3 db\n", b"127.0.1.1 abc123\n10.1.2.3 db\n"),
    "between": (b"127.0.0.1 localhost\n127.0.1.1\tsandbox.local\n10.1.2.3 \xff",
                b"127.0.0.1 localhost\n127.0.1.1 abc123\n10.1.2.3 \xff"),
    "last": (b"10.1.2.3 db\n127.0.1.1 sandbox", b"10.1.2.3 db\n127.0.1.1 abc123\n"),
    "missing": (b"127.0.1.10 db", b"127.0.1.10 db\n127.0.1.1 abc123\n"),
    "too large": (b"# 127.0.1.1\n" * 100_000, b"# 127.0.1.1\n" * 100_000),
}


@pytest.mark.parametrize("before,after", HOSTS.values(), ids=HOSTS)
def test_a_clone_keeps_the_users_lines_of_etc_hosts(
        agent: RunningAgent, before: bytes | None, after: bytes) -> None:
    hosts = agent.root / "etc/hosts"
    if before is not None:
        hosts.write_bytes(before)
    adopt(agent, IDENTITY)
    assert hosts.read_bytes() == after


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_clone_needs_no_etc_hosts(agent: RunningAgent, make: Callable[[Path], None]) -> None:
    make(agent.root / "etc/hosts")
    adopt(agent, IDENTITY)
    assert agent.client(IDENTITY.token).ping().adopted == "abc123"


def test_a_clone_of_a_guest_without_ssh_has_none_either(agent: RunningAgent) -> None:
    (agent.root / "etc/ssh").rmdir()
    adopt(agent, IDENTITY)
    assert agent.client(IDENTITY.token).ping().adopted == "abc123"
    assert sorted(os.listdir(agent.root / "etc")) == ["hostname", "hosts", "machine-id"]


def test_a_shorter_identity_leaves_nothing_of_a_longer_one(agent: RunningAgent) -> None:
    adopt(agent, dataclasses.replace(IDENTITY, host_key_private="LONGER " * 50,
                                     hostname="a-much-longer-name"))
    adopt(agent, IDENTITY, IDENTITY.token)
    assert (agent.root / "etc/ssh/ssh_host_ed25519_key").read_text() == "PRIVATE\n"
    assert (agent.root / "etc/hostname").read_text() == "abc123\n"


def test_a_clone_keeps_no_callback_token_and_a_woken_guest_does(agent: RunningAgent) -> None:
    directory = agent.root / "run/svc-agent"
    directory.mkdir()
    for name in ("bootstrap.json", "started", "launch.json"):
        (directory / name).write_text("{}")
    adopt(agent, dataclasses.replace(IDENTITY, renew=False))
    assert sorted(os.listdir(directory)) == ["bootstrap.json", "launch.json", "started"]
    adopt(agent, IDENTITY, IDENTITY.token)
    assert os.listdir(directory) == ["launch.json"]


def test_without_renewal_the_disk_stays_as_it_is(agent: RunningAgent) -> None:
    adopt(agent, dataclasses.replace(IDENTITY, renew=False))
    assert not (agent.root / "etc/machine-id").exists()
    assert os.listdir(agent.root / "etc/ssh") == []


def test_a_renewal_without_keys_makes_new_ones(agent: RunningAgent) -> None:
    keys = []
    client = agent.client()
    for _ in range(2):
        client.adopt(dataclasses.replace(IDENTITY, host_key_private=None, host_key_public=None))
        client.ping()
        keys.append((agent.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text())
    assert keys[0].startswith("ssh-ed25519 ") and keys[0] != keys[1]


def test_a_guest_that_stays_who_it_is_writes_nothing(agent: RunningAgent) -> None:
    woken = dataclasses.replace(IDENTITY, renew=False)
    adopt(agent, woken)
    state = agent.root / "run/svc/identity.json"
    state.unlink()
    adopt(agent, woken, IDENTITY.token)
    assert not state.exists()
    for changed in (dataclasses.replace(woken, env={}),
                    dataclasses.replace(woken, sandbox_id="other"),
                    dataclasses.replace(woken, token="another-token-0123456789")):
        adopt(agent, changed, woken.token)
        state.unlink()
        adopt(agent, woken, changed.token)
        assert state.exists()


def test_the_environment_reaches_commands_and_the_callers_wins(agent: RunningAgent) -> None:
    client = agent.client()
    client.adopt(IDENTITY)
    assert client.exec(shell='echo "$SVC_AI_URL $B"', env={"B": "2"}).stdout == b"http://ai 2\n"
    client.adopt(dataclasses.replace(IDENTITY, env={}))
    assert client.exec(shell='echo "$SVC_AI_URL"').stdout == b"\n"


def test_adopting_again_is_possible(agent: RunningAgent) -> None:
    client = agent.client()
    for number in range(3):
        client.adopt(
            dataclasses.replace(IDENTITY, token=f"token-number-{number}-0123456789",
                                sandbox_id=f"s{number}"))
    assert client.ping().adopted == "s2"


def test_a_restarted_agent_remembers_but_a_rebooted_guest_does_not(agent: RunningAgent) -> None:
    agent.client().adopt(IDENTITY)
    second = start_agent(agent.root)
    try:
        assert second.client(IDENTITY.token).ping().adopted == "abc123"
        assert second.client(IDENTITY.token).exec(shell="echo $B").stdout == b"1\n"
    finally:
        stop_agent(second)
    for file in (agent.root / "run/svc").iterdir():  # what a reboot does to /run
        file.unlink()
    third = start_agent(agent.root)
    try:
        assert third.client(TOKEN).ping().adopted is None
    finally:
        stop_agent(third)


def test_the_secrets_are_kept_where_only_root_reads(agent: RunningAgent) -> None:
    agent.client().adopt(IDENTITY)
    kept = agent.root / "run/svc"
    assert kept.stat().st_mode & 0o077 == 0
    assert (kept / "identity.json").stat().st_mode & 0o077 == 0


BAD = {
    "no token": {"newToken": None},
    "short token": {"newToken": "x"},
    "no entropy": {"entropy": ""},
    "short entropy": {"entropy": base64.b64encode(b"x").decode()},
    "no base64": {"entropy": "!"},
    "no clock": {"clockNs": None},
    "clock text": {"clockNs": "1"},
    "machine id": {"machineId": "XYZ"},
    "hostname": {"hostname": "a b"},
    "half a key": {"hostKeyPrivate": "x"},
    "env": {"env": {"A": 1}},
    "renew": {"renew": "yes"},
    "sandbox": {"sandboxId": 7},
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_a_malformed_adoption_changes_nothing(agent: RunningAgent, change: dict) -> None:
    good = {"newToken": IDENTITY.token, "sandboxId": "abc", "clockNs": 1, "renew": True,
            "entropy": base64.b64encode(bytes(64)).decode()}
    with Wire(agent.port) as wire:
        wire.request("adopt", TOKEN, **(good | change))
        kind, reply = wire.answer()
    assert (kind, reply["code"]) == (FAILURE, "bad_request")
    assert agent.client(TOKEN).ping().adopted is None
    assert not (agent.root / "etc/machine-id").exists()


def test_an_adoption_whose_files_cannot_be_written_keeps_the_old_token(
        agent: RunningAgent) -> None:
    (agent.root / "etc/hostname").mkdir()  # cannot be overwritten
    os.mkfifo(agent.root / "etc/machine-id")  # nor may it be waited for
    for name, remove in (("etc/machine-id", os.unlink), ("etc/hostname", os.rmdir)):
        with pytest.raises(AgentRefused) as refusal:
            agent.client().adopt(IDENTITY)
        assert refusal.value.code == "failed"
        assert agent.client(TOKEN).ping().adopted is None
        remove(agent.root / name)
    agent.client().adopt(IDENTITY)
    assert agent.client(IDENTITY.token).ping().adopted == "abc123"


def test_a_restored_guest_rehearses_unless_a_command_comes_first(agent: RunningAgent) -> None:
    client = agent.client()
    client.adopt(IDENTITY)
    time.sleep(2 * REHEARSAL_AFTER_S)
    assert faults_of_children(agent) == 0, "it was not asked to"
    client.adopt(dataclasses.replace(IDENTITY, rehearse=True))
    until(lambda: faults_of_children(agent) > 0)
    for _ in range(20):
        began = time.monotonic()
        client.adopt(dataclasses.replace(IDENTITY, rehearse=True))
        client.exec(["/bin/true"])
        if time.monotonic() < began + REHEARSAL_AFTER_S:
            break
        time.sleep(2 * REHEARSAL_AFTER_S)  # the command may have come too late
    after_command = faults_of_children(agent)
    time.sleep(2 * REHEARSAL_AFTER_S)
    assert faults_of_children(agent) == after_command


def faults_of_children(agent: RunningAgent) -> int:
    """Of pages, in all the children that it has waited for: `cminflt` of proc(5)."""
    fields = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[8])
