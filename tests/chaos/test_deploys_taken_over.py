"""A VM host dies while it builds an app: the other one builds and serves it, from the disk that was
uploaded, although its worker dies too, and the first cleans up when it is back."""
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


def builders(stack):
    return query(stack, "SELECT node_id FROM sandboxes WHERE kind = 'builder'"
                        " AND status != 'stopped'")


@pytest.mark.timeout(600)
def test_a_dead_hosts_deploy_is_built_and_published_by_its_peer(vm_stack, vm_alice, other):
    deploys = Deploys(vm_stack, vm_alice)
    editor = vm_alice.post("/v1/sandboxes", json={}, headers=vm_alice.key_headers
                           | {"X-Svc-Node": OTHER}).json()["id"]
    vm_alice.wait_for(editor, "running", timeout_s=300)
    vm_alice.write(editor, {"svc.json": json.dumps(BUILD), "version": "of the dead\n"})
    taken = vm_alice.post(f"/v1/sandboxes/{editor}/snapshot").raise_for_status().json()["id"]
    becomes(lambda: vm_alice.get(f"/v1/snapshots/{taken}").json()["uploadedToStore"],
            timeout_s=200)
    with fault_point(other) as fault:
        fault("deploy.build_begun", "sleep:300")
        deploys.publish("orphan", taken, **{"async": True})
        until(fault.reached, 200)
        for name in WORKERS:
            other.crash(name)
    assert builders(vm_stack) == [(OTHER,)]
    with fault_point(vm_stack) as fault:
        fault("deploy.fetched")
        becomes(lambda: deploys.get("orphan")["status"], "live", 300)
        assert fault.reached(), "the peer's worker was killed when it had the disk"
    run, = query(vm_stack, "SELECT node_id, epoch FROM deploy_runs WHERE slug = 'orphan'")
    assert run[0] == vm_stack.settings.node_id
    with client(vm_stack, "orphan.apps.localhost") as http:
        until(lambda: http.get("/").text == "of the dead\n", 10)
    assert query(vm_stack, "SELECT type FROM events WHERE subject = 'orphan'") == [
        ("deploy.succeeded",)]
    assert (OTHER,) in builders(vm_stack), "its host is not there to remove it"
    other.start(*WORKERS)
    becomes(lambda: builders(vm_stack), [], 100)
    copied = vm_stack.settings.node_dir / "snapshots" / taken
    until(lambda: not copied.exists(), 60)
    vm_alice.delete(f"/v1/sandboxes/{editor}")
