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
    "a wake of one that runs": lambda alice, path: alice.post(f"{path}/wake"),
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
    for _ in range(5):
        longest_s, answer = _use_until_another_sleeps(alice, use)
        if longest_s < 1.5:  # else this machine stood still, and it was not in use
            break
    assert answer.is_success


def _use_until_another_sleeps(alice, use):
    """The longest time in seconds without a use, and the last answer."""
    idle, used = (alice.create(timeout=2)["id"] for _ in range(2))
    longest_s, before, deadline = 0.0, time.monotonic(), time.monotonic() + 60
    while True:
        slept = alice.get(f"/v1/sandboxes/{idle}").json()["status"] == "hibernated"
        answer = use(alice, f"/v1/sandboxes/{used}")
        longest_s, before = max(longest_s, time.monotonic() - before), time.monotonic()
        assert before < deadline
        if slept or not answer.is_success:
            break
        time.sleep(0.3)
    for made in (used, idle):
        alice.delete(f"/v1/sandboxes/{made}")
    return longest_s, answer
