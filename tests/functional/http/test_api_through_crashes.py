"""The API as a client sees it while Redis, Postgres or the API itself is killed, with every process
real."""
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from tests.stack.waiting import listens


@pytest.fixture(scope="module")
def sandbox(alice):
    made = alice.create()
    yield made["id"]
    alice.delete(f"/v1/sandboxes/{made['id']}")


def eventually(probe, wanted, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    seen = None
    while time.monotonic() < deadline:
        try:
            seen = probe()
        except httpx.TransportError as error:
            seen = repr(error)
        if seen == wanted:
            return
        time.sleep(0.1)
    pytest.fail(f"wanted {wanted!r}, last seen {seen!r}")


@pytest.mark.slow
def test_without_redis_everything_but_new_lifecycle_steps_goes_on(sim_stack, alice, sandbox):
    sim_stack.stop("redis")
    try:
        assert alice.get("/health").status_code == 200
        assert alice.get(f"/v1/sandboxes/{sandbox}").json()["status"] == "running"
        assert alice.get("/v1/sandboxes").status_code == 200
        assert alice.exec(sandbox, "echo", "still here")["stdout"] == "still here\n"
        began = time.monotonic()
        accepted = alice.post("/v1/sandboxes", json={})
        assert accepted.status_code == 201 and time.monotonic() - began < 10
        assert alice.get(
            f"/v1/sandboxes/{accepted.json()['id']}").json()["status"] == "provisioning"
    finally:
        sim_stack.start("redis")
    alice.wait_for(accepted.json()["id"], "running")
    assert alice.delete(f"/v1/sandboxes/{accepted.json()['id']}").json()["status"] == "stopped"


def test_without_postgres_503_and_back_without_a_restart(sim_stack, alice, sandbox):
    sim_stack.crash("postgres")
    try:
        # The backends of a killed Postgres serve on until they notice.
        eventually(lambda: alice.get("/health").status_code, 503)
        for path in (f"/v1/sandboxes/{sandbox}", "/v1/sandboxes", "/health"):
            answer = alice.get(path)
            assert answer.status_code == 503 and list(answer.json()) == ["error"]
    finally:
        sim_stack.start("postgres")
    eventually(lambda: alice.get(f"/v1/sandboxes/{sandbox}").status_code, 200)
    eventually(
        lambda: alice.post(f"/v1/sandboxes/{sandbox}/exec", json={"cmd": "echo back"}).status_code,
        200)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["runner.claimed", "runner.handled"])
def test_a_worker_holds_its_operation_across_an_outage_of_postgres(sim_stack, alice, sandbox, fault,
                                                                   point):
    alice.post(f"/v1/sandboxes/{sandbox}/wake")
    errors = sim_stack.logs("node-ops", 10_000).count("raised unexpected")
    fault(point, "sleep:1")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(alice.post, f"/v1/sandboxes/{sandbox}/hibernate")
        eventually(fault.reached, True)
        sim_stack.crash("postgres")
        time.sleep(1)
        sim_stack.start("postgres")
        assert asked.result().status_code in (200, 503)
    eventually(lambda: alice.get(f"/v1/sandboxes/{sandbox}").json().get("status"), "hibernated")
    assert sim_stack.logs("node-ops", 10_000).count("raised unexpected") == errors
    alice.post(f"/v1/sandboxes/{sandbox}/wake")


def test_a_snapshot_is_answered_though_postgres_goes_away_while_it_waits(sim_stack, alice, sandbox,
                                                                         fault):
    fault("runner.claimed", "sleep:2")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(alice.post, f"/v1/sandboxes/{sandbox}/snapshot")
        eventually(fault.reached, True)
        sim_stack.crash("postgres")
        time.sleep(3)  # longer than the wait is between two looks
        sim_stack.start("postgres")
        answer = asked.result()
    assert answer.status_code == 201 and answer.json()["sourceSandboxId"] == sandbox


def test_a_killed_api_comes_back_and_knows_everything(sim_stack, alice, sandbox):
    body = {"idempotencyKey": f"across a crash {time.time_ns()}"}
    first = alice.post("/v1/sandboxes", json=body).json()["id"]
    sim_stack.crash("api")
    # The workers of a killed master serve until they notice, answer on connections that they have a
    # moment longer, and cut off who is waiting when they end.
    port = urlsplit(sim_stack.api_url).port
    eventually(lambda: listens(port), False)
    sim_stack.start("api")
    eventually(lambda: listens(port), True)
    eventually(lambda: alice.get(f"/v1/sandboxes/{sandbox}").status_code, 200)
    assert alice.post("/v1/sandboxes", json=body).json()["id"] == first
    alice.wait_for(first, "running")
    alice.delete(f"/v1/sandboxes/{first}")


def test_no_log_holds_a_secret(sim_stack, alice, sandbox):
    def told():
        text = sim_stack.logs("api", 10_000)
        return [text.count(line) for line in (f"POST /v1/sandboxes/{sandbox}/exec ",
                                              "GET /v1/sandboxes 400", "GET /v1/sandboxes 401")]

    before = told()
    alice.post(f"/v1/sandboxes/{sandbox}/exec",
               json={"cmd": "echo hunter2", "env": {"TOKEN": "hunter2"}})
    alice.get("/v1/sandboxes?access_token=hunter2")
    alice.get("/v1/sandboxes", headers={"Authorization": "Bearer hunter2"})
    eventually(told, [count + 1 for count in before])
    for process in ("api", "identity", "node-ops", "control", "relay"):
        text = sim_stack.logs(process, 10_000)
        for secret in ("hunter2", alice.api_key, alice.password, alice.jwt):
            assert secret not in text, process
