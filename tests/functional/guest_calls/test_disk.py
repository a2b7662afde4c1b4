"""GET and PATCH /v1/sandboxes/{id}/disk through every process, with simulated guests on disks of 4
GiB."""
import base64
import time

import pytest

from services.guest_calls.disk_growth import DEVICE_BYTES, FLOOR_BYTES

FIELDS = {"totalBytes", "usedBytes", "availableBytes"}
SMALL_BYTES = 4 * 1024**3


@pytest.fixture
def sandbox(alice):
    made = alice.create()["id"]
    item = {"path": "/home/user/kept", "content": base64.b64encode(b"kept").decode()}
    assert alice.post(f"/v1/sandboxes/{made}/files", json=[item]).status_code == 204
    yield made
    alice.delete(f"/v1/sandboxes/{made}")


def disk(persona, sandbox, **options):
    return persona.get(f"/v1/sandboxes/{sandbox}/disk", **options)


def grow(persona, sandbox, **options):
    return persona.request("PATCH", f"/v1/sandboxes/{sandbox}/disk", **options)


def check(answer, total_bytes):
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told.keys() == FIELDS and told["totalBytes"] == total_bytes
    assert (
        0 < told["usedBytes"] <= told["totalBytes"] and told["availableBytes"] <= told["totalBytes"]
    )


def test_a_small_disk_is_grown_to_the_floor_and_stays_grown(alice, sandbox):
    check(disk(alice, sandbox), SMALL_BYTES)
    check(grow(alice, sandbox), DEVICE_BYTES)
    check(grow(alice, sandbox, json={}), DEVICE_BYTES)
    assert DEVICE_BYTES >= FLOOR_BYTES == 16 * 10**9
    fork = alice.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["id"]
    alice.wait_for(fork, "running")
    check(disk(alice, fork), DEVICE_BYTES)
    assert alice.delete(f"/v1/sandboxes/{fork}").status_code == 200
    for action in ("hibernate", "wake"):
        assert alice.post(f"/v1/sandboxes/{sandbox}/{action}").status_code == 200
    check(disk(alice, sandbox), DEVICE_BYTES)
    assert alice.exec(sandbox, "cat", "/home/user/kept")["stdout"] == "kept"


@pytest.mark.parametrize("body", [{"sizeBytes": 1}, {"totalBytes": None}, [], 3, "x"])
def test_a_body_that_says_something_is_400_and_changes_nothing(alice, sandbox, body):
    assert grow(alice, sandbox, json=body).status_code == 400
    check(disk(alice, sandbox), SMALL_BYTES)


def test_what_does_not_run_is_409(alice, sandbox):
    assert alice.post(f"/v1/sandboxes/{sandbox}/hibernate").status_code == 200
    for answer in (disk(alice, sandbox), grow(alice, sandbox)):
        assert answer.status_code == 409 and "hibernated" in answer.json()["error"]
    assert alice.delete(f"/v1/sandboxes/{sandbox}").status_code == 200
    for answer in (disk(alice, sandbox), grow(alice, sandbox)):
        assert answer.status_code == 409 and "stopped" in answer.json()["error"]


def test_strangers_and_pins(alice, mallory, sandbox):
    assert disk(mallory, sandbox).status_code == 403 and grow(mallory, sandbox).status_code == 403
    pinned = {"headers": alice.key_headers | {"X-Svc-Node": "elsewhere"}}
    assert (
        disk(alice, sandbox, **pinned).status_code == 421
        and grow(alice, sandbox, **pinned).status_code == 421
    )
    check(disk(alice, sandbox), SMALL_BYTES)


def test_a_command_goes_on_while_the_disk_grows(alice, sandbox):
    alice.http.timeout = 90
    began = alice.post(f"/v1/sandboxes/{sandbox}/exec",
                       json={"cmd": "sleep", "args": ["2"], "detached": True})
    assert began.status_code == 200
    check(grow(alice, sandbox), DEVICE_BYTES)
    assert alice.exec(sandbox, "cat", "/home/user/kept")["stdout"] == "kept"


@pytest.mark.slow
@pytest.mark.parametrize("point",
                         ["runner.claimed", "grow.recorded", "grow.resized", "runner.handled"])
def test_a_worker_that_dies_while_it_grows_a_disk_is_made_up_for(alice, sandbox, point, fault):
    fault(point)
    deadline = time.monotonic() + 60
    answer = grow(alice, sandbox)
    while answer.status_code == 503 and time.monotonic() < deadline:
        answer = grow(alice, sandbox)
    assert fault.reached()
    check(answer, DEVICE_BYTES)
    assert alice.exec(sandbox, "cat", "/home/user/kept")["stdout"] == "kept"
