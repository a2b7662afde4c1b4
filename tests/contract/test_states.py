"""States and transitions: what each state allows, and how a boot ends."""
import time

import pytest

from models.database import connection
from models.ids import new_id
from models.sandboxes import Sandbox
from models.states import Plan
from nodeworker.hypervisor.driver import VmState
from nodeworker.hypervisor.factory import make_driver
from services.hosts.nodes import NodeFacts, heartbeat
from tests.stack.edge import make_edge

SANDBOXES = "/v1/sandboxes"
NEEDS_RUNNING = [
    ("exec", {"cmd": "true"}), ("files", [{"path": "/x", "content": "eA=="}]), ("hibernate", {}),
    ("pause", {}), ("snapshot", {}), ("fork", {}),
]


# Below its disk floor, with ports of which an owner may have one.
FULL = NodeFacts("full", "127.0.0.1", 64, 65536, 20000, 20001, {}, disk_mb=100_000,
                 disk_free_mb=3_999, disk_floor_mb=4_000)
MORE_PORTS = ("wake", {"ports": [3000, 3001]})


@pytest.fixture
def nothing_left(postgres_url, redis_url, tmp_path):
    """Both hosts, where an account has no further snapshot, byte or operation, and FULL."""
    none = {Plan.LEGACY_PRO.value: 0}
    yield from make_edge(postgres_url, redis_url, tmp_path, snapshot_quota=none,
                         storage_quota_gb=none, open_operations=0)


@pytest.fixture
def call(nothing_left):
    """Does something to a sandbox on FULL that has a status, and gives the answer."""
    heartbeat(FULL)
    owner = nothing_left.newcomer()
    headers = nothing_left.key(owner)

    def send(status, action, body):
        with connection():
            made = Sandbox.create(id=new_id(), owner=owner.id, node_id=FULL.id, status=status,
                                  task="boot" if status == "provisioning" else None, vcpus=1,
                                  mem_mb=1024, agent_port=1, agent_token="x", idle_timeout_s=60)
        path = f"{SANDBOXES}/{made.id}/{action}"
        if action.startswith("uploads"):
            return nothing_left.api.put(path, data=b"x", headers=headers)
        return nothing_left.api.post(path, json=body, headers=headers)

    return send


@pytest.fixture
def host(sim_stack):
    """The driver of the stack's node, as another process sees it."""
    return make_driver(sim_stack.settings)


@pytest.mark.parametrize(("action", "body"), NEEDS_RUNNING,
                         ids=[action for action, _ in NEEDS_RUNNING])
def test_a_booting_sandbox_cannot_be_used_yet(edge, action, body):
    headers = edge.key(edge.newcomer())
    made = edge.api.post(SANDBOXES, json={}, headers=headers).json["id"]
    began = time.monotonic()
    answer = edge.api.post(f"{SANDBOXES}/{made}/{action}", json=body, headers=headers)
    assert answer.status_code == 409 and "provisioning" in answer.json["error"]
    assert time.monotonic(
    ) - began < edge.settings.operation_wait_s, "said at once, not after waiting for the boot"
    assert edge.api.get(f"{SANDBOXES}/{made}", headers=headers).json["status"] == "provisioning"


@pytest.mark.parametrize(("status", "action", "body"), [
    *(("stopped", action, {}) for action in ("hibernate", "wake", "snapshot", "tarball")),
    ("stopped", *MORE_PORTS), ("hibernated", "tarball", {}), ("provisioning", "snapshot", {}),
    *((status, "uploads/x", None) for status in ("stopped", "hibernated", "provisioning")),
])
def test_a_wrong_state_is_said_before_anything_that_is_used_up(call, status, action, body):
    answer = call(status, action, body)
    assert answer.status_code == 409 and status in answer.json["error"], answer.text


@pytest.mark.parametrize(("status", "action", "body", "code", "complaint"), [
    ("running", "hibernate", {}, 429, "under way"), ("running", "snapshot", {}, 409, "snapshots"),
    ("running", "uploads/x", None, 503, "disk"), ("hibernated", *MORE_PORTS, 429, "under way"),
])
def test_in_a_right_state_it_is_said_what_is_used_up(call, status, action, body, code, complaint):
    answer = call(status, action, body)
    assert answer.status_code == code and complaint in answer.json["error"], answer.text


def test_a_poller_sees_provisioning_then_running(alice):
    made = alice.post(SANDBOXES, json={}).json()
    seen = [made["status"]]
    deadline = time.monotonic() + 60
    while seen[-1] != "running" and time.monotonic() < deadline:
        seen.append(alice.get(f"{SANDBOXES}/{made['id']}").json()["status"])
    alice.delete(f"{SANDBOXES}/{made['id']}")
    assert seen[0] == "provisioning" and seen[-1] == "running" and set(seen) == {
        "provisioning", "running"
    }


def test_a_boot_that_fails_ends_as_stopped_and_says_so(alice, host, sandbox):
    taken = alice.post(f"{SANDBOXES}/{sandbox['id']}/snapshot").json()["id"]
    host.delete_snapshot(taken)
    made = alice.post(f"{SANDBOXES}/fork", json={"snapshotId": taken}).json()["id"]
    deadline = time.monotonic() + 60
    while (body := alice.get(f"{SANDBOXES}/{made}").json())["status"] == "provisioning":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert body["status"] == "stopped" and body["error"]
    assert made not in [
        entry["id"] for entry in alice.get(f"{SANDBOXES}?limit=500").json()["sandboxes"]
    ]
    assert host.inspect(made) is None, "nothing of it is left on the host"


def test_each_status_is_true_of_the_machine(alice, host):
    made = alice.create()["id"]
    assert host.inspect(made) is VmState.RUNNING
    assert alice.post(f"{SANDBOXES}/{made}/hibernate").json()["status"] == "hibernated"
    assert host.inspect(made) is VmState.SAVED
    assert alice.post(f"{SANDBOXES}/{made}/wake").json()["status"] == "running"
    assert host.inspect(made) is VmState.RUNNING
    assert alice.delete(f"{SANDBOXES}/{made}").json()["status"] == "stopped"
    assert host.inspect(made) is None


@pytest.mark.parametrize("state", ["provisioning", "running", "hibernated", "stopped"])
def test_delete_works_in_every_state_and_again(alice, state):
    made = alice.post(SANDBOXES, json={}).json()["id"]
    if state != "provisioning":
        alice.wait_for(made, "running")
    if state == "hibernated":
        alice.post(f"{SANDBOXES}/{made}/hibernate").raise_for_status()
    for _ in range(3 if state == "stopped" else 2):
        answer = alice.delete(f"{SANDBOXES}/{made}")
        assert (answer.status_code, answer.json()["status"],
                answer.json()["id"]) == (200, "stopped", made)


def test_a_stopped_sandbox_can_only_be_read_and_deleted(alice):
    made = alice.create()["id"]
    alice.delete(f"{SANDBOXES}/{made}")
    for action, body in [*NEEDS_RUNNING, ("wake", {}), ("resume", {}), ("extend", {})]:
        answer = alice.post(f"{SANDBOXES}/{made}/{action}", json=body)
        assert answer.status_code == 409 and "stopped" in answer.json()["error"], action
    assert alice.get(f"{SANDBOXES}/{made}/files?path=/x").status_code == 409
    assert alice.get(f"{SANDBOXES}/{made}").json()["status"] == "stopped"
