"""A VM host dies. Its snapshots are forked on the other one, from the disks that were uploaded. The
app that it builds is built and served by the other one, although that one's worker dies too, and
the first cleans up when it is back."""
import json

import pytest

from tests.clients.deploys import Deploys
from tests.stack.database import query
from tests.stack.fault_points import fault_point
from tests.stack.processes import second_node
from tests.stack.waiting import becomes, until
from tests.tls.clients import client

pytestmark = pytest.mark.vm
OTHER = "node-v"
WORKERS = ("node-deploy", "node-ops", "node-ctl")
BUILD = {"build": "mkdir dist; cat /etc/hostname > dist/builder.txt; cp version dist/index.html"}


@pytest.fixture(scope="module")
def other(vm_stack):
    with second_node(vm_stack, OTHER, ("ctl", "ops", "bulk", "deploy")) as node:
        yield node


@pytest.fixture(scope="module")
def editor(vm_stack, vm_alice, other):
    """A sandbox on the other host with a project."""
    made = vm_alice.post("/v1/sandboxes", json={}, headers=vm_alice.key_headers
                         | {"X-Svc-Node": OTHER}).json()["id"]
    vm_alice.wait_for(made, "running", timeout_s=300)
    vm_alice.write(made, {"svc.json": json.dumps(BUILD), "version": "of the dead\n"})
    yield made
    vm_alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture(scope="module")
def taken(vm_alice, editor):
    """A snapshot of it that is in the store."""
    taken = vm_alice.post(f"/v1/sandboxes/{editor}/snapshot").raise_for_status().json()["id"]
    becomes(lambda: vm_alice.get(f"/v1/snapshots/{taken}").json()["uploadedToStore"],
            timeout_s=200)
    return taken


def kill(stack, other):
    """Let the other host die, long enough ago for everybody to have noticed."""
    for name in WORKERS:
        other.crash(name)
    query(stack, "UPDATE nodes SET heartbeat_at = 'epoch' WHERE id = %s", OTHER)


def copied(stack, snapshot):
    return stack.settings.node_dir / "snapshots" / snapshot


@pytest.mark.timeout(600)
def test_a_dead_hosts_snapshot_is_forked_on_its_peer(vm_stack, vm_alice, other, taken):
    kill(vm_stack, other)
    with fault_point(vm_stack) as fault:
        fault("fetch.imported")
        fork = vm_alice.post("/v1/sandboxes/fork", json={"snapshotId": taken}).json()["id"]
        copy = vm_alice.wait_for(fork, "running", timeout_s=300)
        assert fault.reached(), "the peer's worker was killed when it had the disk"
    assert copy["nodeId"] == vm_stack.settings.node_id
    until(lambda: not copied(vm_stack, taken).exists(), 60)
    read = ["sh", "-c", "cat version; hostname"]
    for _ in range(2):
        assert vm_alice.exec(fork, *read)["stdout"] == f"of the dead\n{fork}\n"
        vm_alice.post(f"/v1/sandboxes/{fork}/hibernate").raise_for_status()
        vm_alice.post(f"/v1/sandboxes/{fork}/wake").raise_for_status()
    vm_alice.delete(f"/v1/sandboxes/{fork}")
    other.start(*WORKERS)
    until(lambda: query(vm_stack, "SELECT 1 FROM nodes WHERE id = %s AND heartbeat_at > now()"
                                  " - interval '5 seconds'", OTHER), 60)


def builders(stack):
    return query(stack, "SELECT node_id FROM sandboxes WHERE kind = 'builder'"
                        " AND status != 'stopped'")


@pytest.mark.timeout(600)
def test_a_dead_hosts_deploy_is_built_and_published_by_its_peer(vm_stack, vm_alice, other, taken):
    deploys = Deploys(vm_stack, vm_alice)
    with fault_point(other) as fault:
        fault("deploy.build_begun", "sleep:300")
        deploys.publish("orphan", taken, **{"async": True})
        until(fault.reached, 200)
        kill(vm_stack, other)
    assert builders(vm_stack) == [(OTHER,)]
    with fault_point(vm_stack) as fault:
        fault("fetch.imported")
        becomes(lambda: deploys.get("orphan")["status"], "live", 300)
        assert fault.reached(), "the peer's worker was killed when it had the disk"
    run, = query(vm_stack, "SELECT node_id, epoch FROM deploy_runs WHERE slug = 'orphan'")
    assert run[0] == vm_stack.settings.node_id
    with client(vm_stack, "orphan.apps.localhost") as http:
        until(lambda: http.get("/").text == "of the dead\n")
    assert query(vm_stack, "SELECT type FROM events WHERE subject = 'orphan'") == [
        ("deploy.succeeded",)]
    assert (OTHER,) in builders(vm_stack), "its host is not there to remove it"
    other.start(*WORKERS)
    becomes(lambda: builders(vm_stack), [], 100)
    until(lambda: not copied(vm_stack, taken).exists(), 60)
