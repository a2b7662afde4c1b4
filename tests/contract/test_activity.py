"""What counts as activity: it moves `lastActiveAt` and starts the idle clock again."""
import time

import pytest

USES = {
    "exec": lambda alice, path: alice.post(f"{path}/exec", json={"cmd": "true"}),
    "a file written": lambda alice, path: alice.post(
        f"{path}/files", json=[{"path": "/data/x", "content": "eA=="}]
    ),
    "a file read": lambda alice, path: alice.get(f"{path}/files?path=/data/none"),
    "extend": lambda alice, path: alice.post(f"{path}/extend"),
}


def last_active(alice, sandbox):
    entries = alice.get("/v1/sandboxes?limit=500").json()["sandboxes"]
    return next(entry["lastActiveAt"] for entry in entries if entry["id"] == sandbox)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_keeps_a_sandbox_awake_also_dates_it(alice, sandbox, use):
    path = f"/v1/sandboxes/{sandbox['id']}"
    before = last_active(alice, sandbox["id"])
    time.sleep(0.01)
    assert alice.get(path).status_code == 200
    assert last_active(alice, sandbox["id"]) == before, "looking is not using"
    assert use(alice, path).status_code in (200, 204, 404)
    assert last_active(alice, sandbox["id"]) > before


@pytest.mark.slow
@pytest.mark.parametrize("use", [USES["a file written"], USES["extend"]],
                         ids=["a file written", "extend"])
def test_a_sandbox_in_use_outlives_its_idle_timeout(alice, use):
    used, idle = alice.create(timeout=2)["id"], alice.create(timeout=2)["id"]
    deadline = time.monotonic() + 60
    while alice.get(f"/v1/sandboxes/{idle}").json()["status"] != "hibernated":
        assert use(alice, f"/v1/sandboxes/{used}").is_success
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert use(alice, f"/v1/sandboxes/{used}").is_success
    for made in (used, idle):
        alice.delete(f"/v1/sandboxes/{made}")
