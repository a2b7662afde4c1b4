"""Hibernate, wake, extend and delete through every process, with the simulated hypervisor."""
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

SHAPE = {"id", "status", "cwd", "vmIP", "portMap", "createdAt", "preferredModel", "nodeId"}


@pytest.fixture
def sandbox(alice):
    made = alice.create(ports=[3000])
    yield made["id"]
    alice.delete(f"/v1/sandboxes/{made['id']}")


def post(persona, sandbox, action, **body):
    return persona.post(f"/v1/sandboxes/{sandbox}/{action}", json=body)


@pytest.mark.parametrize(("sleep", "resume"), [("hibernate", "wake"), ("pause", "resume")])
def test_sleep_and_wake_under_either_name(alice, sandbox, sleep, resume):
    before = alice.get(f"/v1/sandboxes/{sandbox}").json()
    slept = post(alice, sandbox, sleep)
    assert slept.status_code == 200 and slept.json().keys() == SHAPE
    assert slept.json()["status"] == "hibernated" and slept.json()["id"] == sandbox
    assert alice.get(f"/v1/sandboxes/{sandbox}").json()["status"] == "hibernated"
    woken = post(alice, sandbox, resume)
    assert woken.status_code == 200 and woken.json()["status"] == "running"
    assert woken.json()["portMap"] == before["portMap"] and woken.json(
    )["createdAt"] == before["createdAt"]


def test_both_are_no_ops_where_they_are_true_already(alice, sandbox):
    assert post(alice, sandbox, "wake").json()["status"] == "running"
    post(alice, sandbox, "hibernate")
    assert post(alice, sandbox, "hibernate").json()["status"] == "hibernated"


def test_bodies_are_optional(alice, sandbox):
    for action in ("hibernate", "wake", "extend"):
        assert alice.post(f"/v1/sandboxes/{sandbox}/{action}").status_code == 200
        assert alice.post(f"/v1/sandboxes/{sandbox}/{action}", json={}).status_code == 200


def test_wake_may_add_ports(alice, sandbox):
    post(alice, sandbox, "hibernate")
    woken = post(alice, sandbox, "wake", ports=[3000, 9000]).json()
    assert sorted(woken["portMap"].values()) == [3000, 9000]


def test_the_ports_of_all_wakes_together_are_limited(alice, sandbox):
    post(alice, sandbox, "hibernate")
    answer = post(alice, sandbox, "wake", ports=list(range(5000, 5064)))
    assert answer.status_code == 400 and "64" in answer.json()["error"]
    assert alice.get(f"/v1/sandboxes/{sandbox}").json()["status"] == "hibernated"
    assert len(post(alice, sandbox, "wake", ports=list(range(5000, 5063))).json()["portMap"]) == 64


def test_extend_answers_with_the_sandbox(alice, sandbox):
    answer = post(alice, sandbox, "extend", timeout=300)
    assert answer.status_code == 200 and answer.json().keys() == SHAPE


def test_an_idle_sandbox_goes_to_sleep_and_extend_keeps_it_awake(alice):
    made = alice.create(timeout=2)["id"]
    kept = alice.create(timeout=2)["id"]
    try:
        assert post(alice, kept, "extend", timeout=3600).status_code == 200
        alice.wait_for(made, "hibernated", timeout_s=60)
        assert alice.get(f"/v1/sandboxes/{kept}").json()["status"] == "running"
    finally:
        alice.delete(f"/v1/sandboxes/{made}")
        alice.delete(f"/v1/sandboxes/{kept}")


def test_delete_answers_stopped_and_may_be_repeated(alice):
    made = alice.create()["id"]
    for _ in range(2):
        answer = alice.delete(f"/v1/sandboxes/{made}")
        assert answer.status_code == 200 and answer.json()["status"] == "stopped"
    assert alice.get(f"/v1/sandboxes/{made}").json()["status"] == "stopped"
    assert made not in {
        entry["id"] for entry in alice.get("/v1/sandboxes?limit=500").json()["sandboxes"]
    }


def test_a_sleeping_and_a_booting_sandbox_can_be_deleted(alice):
    asleep = alice.create()["id"]
    post(alice, asleep, "hibernate")
    assert alice.delete(f"/v1/sandboxes/{asleep}").json()["status"] == "stopped"
    booting = alice.post("/v1/sandboxes", json={}).json()["id"]
    assert alice.delete(f"/v1/sandboxes/{booting}").json()["status"] == "stopped"


@pytest.mark.parametrize("action", ["hibernate", "wake", "extend", "snapshot", "fork"])
def test_nothing_else_works_on_a_stopped_one(alice, action):
    made = alice.create()["id"]
    alice.delete(f"/v1/sandboxes/{made}")
    answer = post(alice, made, action)
    assert answer.status_code == 409 and "stopped" in answer.json()["error"]


def test_a_stranger_changes_nothing(alice, mallory, sandbox):
    for action in ("hibernate", "wake", "extend", "snapshot", "fork"):
        assert post(mallory, sandbox, action).status_code == 403
    assert mallory.delete(f"/v1/sandboxes/{sandbox}").status_code == 403
    assert alice.get(f"/v1/sandboxes/{sandbox}").json()["status"] == "running"


def test_a_free_account_gets_402(bob):
    answer = bob.post("/v1/sandboxes", json={})
    assert answer.status_code == 402 and "plan" in answer.json()["error"]


def test_replays_over_all_processes_make_one_sandbox(alice):
    body = {"idempotencyKey": f"race {time.time_ns()}"}
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: alice.post("/v1/sandboxes", json=body), range(12)))
    assert {answer.status_code for answer in answers} == {201}
    made = {answer.json()["id"] for answer in answers}
    assert len(made) == 1
    alice.wait_for(*made, "running")
    assert alice.post("/v1/sandboxes", json=body).json()["id"] in made
    alice.delete(f"/v1/sandboxes/{made.pop()}")
