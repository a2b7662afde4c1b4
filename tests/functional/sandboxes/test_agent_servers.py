"""The agent server's configuration on its way into simulated guests: once per boot, never into a
fork or a raw one."""
import json

import pytest

from nodeworker.faults import FAULT_POINTS

BOOTSTRAP = {
    "callbackUrl": "https://dashboard.example/hook", "callbackToken": "a-token-of-the-session",
    "model": "m"
}
DIRECTORY = "/run/svc-agent"


def read(alice, sandbox, name):
    """A file of the agent server's directory; None if there is none."""
    answer = alice.post(f"/v1/sandboxes/{sandbox}/exec",
                        json={"cmd": "cat", "args": [f"{DIRECTORY}/{name}"]}).json()
    return json.loads(answer["stdout"] or "{}") if answer["exitCode"] == 0 else None


def start(alice, made, **body):
    sandbox = alice.create(**body)["id"]
    made.append(sandbox)
    return sandbox


def fork(alice, made, source, **body):
    answer = alice.post(f"/v1/sandboxes/{source}/fork", json=body)
    assert answer.status_code == 201, answer.text
    made.append(answer.json()["id"])
    return alice.wait_for(answer.json()["id"], "running")["id"]


def test_the_guest_gets_its_launch_and_its_bootstrap(alice, made):
    sandbox = start(alice, made, agentServerSource="serve", agentBootstrap=BOOTSTRAP,
                    env={"A": "1"}, preferredModel="m1")
    assert read(alice, sandbox, "bootstrap.json") == BOOTSTRAP | {"sandboxId": sandbox}
    assert read(alice, sandbox, "launch.json") == {
        "sandboxId": sandbox, "source": "serve", "cwd": "/home/user",
        "env": {"A": "1", "SVC_PREFERRED_MODEL": "m1"}
    }


@pytest.mark.slow
@pytest.mark.parametrize("point",
                         [point for point in FAULT_POINTS if point.startswith("agent_server.")])
def test_a_worker_that_dies_on_the_way_leaves_a_started_server(alice, made, point, fault):
    fault(point)
    sandbox = start(alice, made, agentServerSource="serve", agentBootstrap=BOOTSTRAP)
    assert fault.reached(), "the worker was killed"
    assert read(alice, sandbox, "bootstrap.json") == BOOTSTRAP | {"sandboxId": sandbox}
    assert "bootstrap" not in read(alice, sandbox, "launch.json") and read(
        alice, sandbox, "started") == {}


def test_a_wake_leaves_alone_what_is_there(alice, made):
    sandbox = start(alice, made, agentServerSource="serve", agentBootstrap=BOOTSTRAP)
    alice.post(f"/v1/sandboxes/{sandbox}/files", json=[
        {"path": f"{DIRECTORY}/bootstrap.json", "content": "eyJvd24iOiAxfQ=="}])
    assert alice.post(f"/v1/sandboxes/{sandbox}/hibernate").status_code == 200
    assert alice.post(f"/v1/sandboxes/{sandbox}/wake").status_code == 200
    assert read(
        alice, sandbox,
        "bootstrap.json") == {"own": 1}, "the agent server runs on; nothing is started again"


def test_a_raw_sandbox_gets_nothing(alice, made):
    for body in ({"agentBootstrap": BOOTSTRAP}, {
            "agentBootstrap": BOOTSTRAP, "agentServerSource": "serve", "skipAppProcesses": True
    }):
        sandbox = start(alice, made, **body)
        assert [
            read(alice, sandbox, name) for name in ("launch.json", "bootstrap.json", "started")
        ] == [None] * 3


def test_a_fork_starts_its_own_server_and_has_no_token(alice, made):
    source = start(alice, made, agentServerSource="serve", agentBootstrap=BOOTSTRAP)
    copy = fork(alice, made, source)
    assert read(alice, copy, "bootstrap.json") is None
    assert read(alice, copy, "launch.json")["sandboxId"] == copy
    raw = fork(alice, made, source, skipAppProcesses=True)
    assert [read(alice, raw, name) for name in ("launch.json", "bootstrap.json", "started")] == [
        None
    ] * 3
    assert read(
        alice, source,
        "bootstrap.json")["callbackToken"] == BOOTSTRAP["callbackToken"], "the source goes on"
    assert read(alice, fork(alice, made, raw), "launch.json") is None, "a fork of a raw one is raw"
