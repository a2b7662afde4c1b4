"""kill -9 of the worker at every named point of every operation: the row reaches a stable state
that is true, with one VM.

After each death: the same id, status and host agree, a second try of the user succeeds, and nothing
without a row is left.
"""
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodeworker.faults import FAULT_POINTS
from tests.stack.fault_points import fault_point

OPERATIONS = ("create", "hibernate", "wake", "snapshot", "destroy")
POINTS = [point for point in FAULT_POINTS if point.split(".")[0] in OPERATIONS]
RUNNER_POINTS = [point for point in FAULT_POINTS if point.startswith("runner.")]
PARKING_POINTS = [point for point in RUNNER_POINTS if point.startswith("runner.park")]
# Where the end of one operation begins another.
BETWEEN_POINTS = ("runner.finished", "runner.went_on")
SLOW = {
    "startCommand": "echo start >> /root/starts; sleep 3; exec python3 -m http.server 3000",
    "readinessPort": 3000, "ports": [3000]
}


@pytest.fixture
def fault(vm_stack):
    """Arms one fault point; says afterwards whether it was reached."""
    with fault_point(vm_stack) as armed:
        yield armed


def settle(persona, sandbox_id, wanted, timeout_s=90):
    """The status once it is one of `wanted`, polled as a client does."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = persona.get(f"/v1/sandboxes/{sandbox_id}")
        status = answer.json().get("status")
        if status in wanted:
            return status
        assert time.monotonic() < deadline, f"{sandbox_id} is {status}, wanted {wanted}"
        time.sleep(0.1)


def insist(persona, method, path, timeout_s=90, **options):
    """Repeat a request until it succeeds, as a client with retries does; anything but 2xx, 409 and
    503 fails."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = persona.request(method, path, **options)
        if answer.is_success:
            return answer
        assert answer.status_code in (409, 503), f"{answer.status_code} {answer.text}"
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.3)


def shell(persona, sandbox_id, line):
    answer = insist(persona, "POST", f"/v1/sandboxes/{sandbox_id}/exec", json={"cmd": line})
    assert answer.json()["exitCode"] == 0, answer.text
    return answer.json()["stdout"].strip()


def machines(stack):
    """Sandbox directories, QEMU processes, namespaces and cgroups of the stack, found by looking at
    the host."""
    prefix, node_dir = stack.settings.net_prefix, Path(stack.site.values["SVC_NODE_DIR"])
    processes = [
        line for line in subprocess.run(["ps", "-eo", "args"], capture_output=True,
                                        text=True).stdout.splitlines()
        if line.startswith("qemu-system") and str(node_dir) in line
    ]
    folders = sorted(entry.name
                     for entry in (node_dir / "sandboxes").glob("*")
                     if not entry.name.startswith("."))
    return folders, processes, prefix


def check_only(stack, sandbox_ids):
    """Within the grace period and a sweep, nothing but `sandbox_ids` is on the host."""
    deadline = time.monotonic() + 30
    while True:
        folders, _, _ = machines(stack)
        if set(folders) <= set(sandbox_ids):
            return
        assert time.monotonic() < deadline, f"left on the host: {folders}, expected {sandbox_ids}"
        time.sleep(0.5)


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("create.")])
def test_create(vm_stack, vm_alice, fault, point):
    fault(point)
    body = {"idempotencyKey": f"fault {point}"}
    sandbox_id = insist(vm_alice, "POST", "/v1/sandboxes", json=body).json()["id"]
    assert settle(vm_alice, sandbox_id, {"running", "stopped"}) == "running"
    assert fault.reached()
    assert shell(vm_alice, sandbox_id, "hostname") == sandbox_id
    assert insist(vm_alice, "POST", "/v1/sandboxes", json=body).json()["id"] == sandbox_id
    insist(vm_alice, "DELETE", f"/v1/sandboxes/{sandbox_id}")
    check_only(vm_stack, [])


@pytest.fixture(scope="module")
def lasting(vm_alice):
    """One sandbox that lives through all the faults, with a file in RAM that tells whether it was
    ever rebooted."""
    sandbox_id = vm_alice.create()["id"]
    mark = os.urandom(8).hex()
    shell(vm_alice, sandbox_id,
          f"echo {mark} > /dev/shm/mark; sleep 100000 >/dev/null 2>&1 & echo $! > /dev/shm/pid")
    yield sandbox_id, mark
    vm_alice.delete(f"/v1/sandboxes/{sandbox_id}")


def check_unharmed(persona, sandbox_id, mark):
    told = shell(persona, sandbox_id,
                 "cat /dev/shm/mark; kill -0 $(cat /dev/shm/pid) && echo alive")
    assert told == f"{mark}\nalive"


@pytest.mark.parametrize(
    "point",
    [point for point in POINTS if point.split(".")[0] in ("hibernate", "wake")]
    + [point for point in RUNNER_POINTS if point not in (*PARKING_POINTS, "runner.went_on")])
def test_sleep_and_wake(vm_stack, vm_alice, fault, lasting, point):
    sandbox_id, mark = lasting
    insist(vm_alice, "POST", f"/v1/sandboxes/{sandbox_id}/wake")
    check_unharmed(vm_alice, sandbox_id, mark)
    if point.startswith("wake."):
        insist(vm_alice, "POST", f"/v1/sandboxes/{sandbox_id}/hibernate")
    fault(point)
    action, status = (
        ("wake", "running") if point.startswith("wake.") else ("hibernate", "hibernated")
    )
    answer = insist(vm_alice, "POST", f"/v1/sandboxes/{sandbox_id}/{action}")
    assert answer.json()["status"] == status
    deadline = time.monotonic() + 20
    while not fault.reached():
        assert time.monotonic() < deadline, f"{point} was never reached"
        time.sleep(0.1)
    insist(vm_alice, "POST", f"/v1/sandboxes/{sandbox_id}/wake")
    check_unharmed(vm_alice, sandbox_id, mark)


@pytest.mark.parametrize("point", PARKING_POINTS)
def test_a_wait_for_a_service(vm_stack, vm_alice, fault, lasting, point):
    sandbox_id, _ = lasting
    insist(vm_alice, "POST", f"/v1/sandboxes/{sandbox_id}/wake")
    fault(point)
    fork = insist(vm_alice, "POST", f"/v1/sandboxes/{sandbox_id}/fork", json=SLOW).json()["id"]
    assert settle(vm_alice, fork, {"running", "stopped"}) == "running"
    assert fault.reached()
    assert shell(vm_alice, fork, "cat /root/starts") == "start"
    shell(vm_alice, fork, "curl -s localhost:3000 > /dev/null")
    insist(vm_alice, "DELETE", f"/v1/sandboxes/{fork}")
    check_only(vm_stack, [sandbox_id])


@pytest.mark.parametrize("point", [*BETWEEN_POINTS, "snapshot.ram_begun", "snapshot.complete",
                                   "create.marked"])
def test_forks_asked_for_at_once(vm_stack, vm_alice, fault, lasting, point):
    sandbox_id, mark = lasting
    insist(vm_alice, "POST", f"/v1/sandboxes/{sandbox_id}/wake")
    fault(point)
    path = f"/v1/sandboxes/{sandbox_id}/fork"
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(insist, vm_alice, "POST", path, json={}) for _ in range(2)]
    forks = [each.result().json()["id"] for each in asked]
    for fork in forks:
        assert settle(vm_alice, fork, {"running", "stopped"}) == "running"
    assert fault.reached()
    for each in (sandbox_id, *forks):
        check_unharmed(vm_alice, each, mark)
    for fork in forks:
        insist(vm_alice, "DELETE", f"/v1/sandboxes/{fork}")
    check_only(vm_stack, [sandbox_id])


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("snapshot.")])
def test_snapshot(vm_stack, vm_alice, fault, lasting, point):
    sandbox_id, mark = lasting
    insist(vm_alice, "POST", f"/v1/sandboxes/{sandbox_id}/wake")
    fault(point)
    path = f"/v1/sandboxes/{sandbox_id}/snapshot"
    taken = insist(vm_alice, "POST", path, json={"idempotencyKey": point}).json()
    assert fault.reached()
    check_unharmed(vm_alice, sandbox_id, mark)
    fork = insist(vm_alice, "POST", "/v1/sandboxes/fork",
                  json={"snapshotId": taken["id"]}).json()["id"]
    assert settle(vm_alice, fork, {"running", "stopped"}) == "running"
    check_unharmed(vm_alice, fork, mark)
    insist(vm_alice, "DELETE", f"/v1/sandboxes/{fork}")
    check_only(vm_stack, [sandbox_id])


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("destroy.")])
def test_delete(vm_stack, vm_alice, fault, lasting, point):
    victim = vm_alice.create()["id"]
    fault(point)
    answer = insist(vm_alice, "DELETE", f"/v1/sandboxes/{victim}")
    assert answer.json()["status"] == "stopped" and fault.reached()
    check_only(vm_stack, [lasting[0]])
    check_unharmed(vm_alice, *lasting)
