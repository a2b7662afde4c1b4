"""`Prefer: wait=N` of the routes that make a sandbox, through every process."""
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from bin.stack import free_ports, health
from models.ids import new_id
from tests.stack.memory import children
from tests.stack.processes import Process
from tests.stack.waiting import until

SANDBOXES = "/v1/sandboxes"
APPLIED = "Preference-Applied"
WAIT = {"Prefer": "wait=30"}


@pytest.fixture
def make(alice, made):
    """Make a sandbox with alice's key and further headers."""

    def send(headers, path=SANDBOXES, **body):
        answer = alice.post(path, json=body, headers=alice.key_headers | headers)
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["id"])
        return answer

    return send


def test_the_answer_is_the_running_sandbox(alice, make):
    answer = make(WAIT)
    assert answer.headers[APPLIED] == "wait=30" and answer.json()["status"] == "running"
    assert answer.json() == alice.get(f"{SANDBOXES}/{answer.json()['id']}").json()


def test_forks_take_it_too(alice, make):
    source = make(WAIT).json()["id"]
    taken = alice.post(f"{SANDBOXES}/{source}/snapshot").json()["id"]
    for path, body in ((f"{SANDBOXES}/{source}/fork", {}),
                       (f"{SANDBOXES}/fork", {"snapshotId": taken})):
        answer = make(WAIT, path, **body)
        assert answer.headers[APPLIED] == "wait=30" and answer.json()["status"] == "running"
        plain = make({}, path, **body)
        assert APPLIED not in plain.headers and plain.json()["status"] == "provisioning"


def test_when_the_time_is_up_it_is_what_it_is_then(make, fault):
    fault("runner.claimed", "sleep:3")
    began = time.monotonic()
    answer = make({"Prefer": "wait=1"})
    assert answer.json()["status"] == "provisioning" and answer.headers[APPLIED] == "wait=1"
    assert time.monotonic() - began > 0.9


def test_a_boot_that_comes_to_nothing_is_answered_as_the_sandbox_is_then(alice, make, fault):
    fault("runner.claimed", "sleep:2")
    with ThreadPoolExecutor() as pool:
        key = new_id()
        waiting = pool.submit(make, WAIT, idempotencyKey=key)
        until(fault.reached)
        sandbox = make({}, idempotencyKey=key).json()["id"]
        alice.delete(f"{SANDBOXES}/{sandbox}")
        answer = waiting.result()
    assert answer.json()["id"] == sandbox and answer.json()["status"] == "stopped"


@pytest.mark.parametrize(("said", "applied"), [
    (None, None), ("", None), ("wait", None), ("wait=", None), ("wait=soon", None),
    ("wait=-1", None), ("wait=1.5", None), ("wait=9999999999", None), ("wait=\"", None),
    ("waiting=5", None), ("respond-async", None), ("wait=x, wait=5", None),
    ("wait=86400", "wait=60"), ("WAIT = \"20\"; a=b", "wait=20"),
    ("respond-async, wait=20", "wait=20"), ("wait=20, wait=1", "wait=20"),
])
def test_what_cannot_be_understood_is_left_aside(make, said, applied):
    answer = make({} if said is None else {"Prefer": said})
    assert answer.headers.get(APPLIED) == applied
    if applied is None:
        assert answer.json()["status"] == "provisioning"


def test_no_time_to_wait_is_the_state_at_once(make, fault):
    fault("runner.claimed", "sleep:1")
    answer = make({"Prefer": "wait=0"})
    assert answer.headers[APPLIED] == "wait=0" and answer.json()["status"] == "provisioning"


def test_a_replay_waits_as_it_says_and_without_the_header_is_the_first_answer(alice, make):
    waited = {"idempotencyKey": new_id()}
    first = make(WAIT, **waited)
    assert make(WAIT, **waited).text == first.text
    plain = make({}, **waited)
    assert plain.json() == first.json() | {"status": "provisioning", "vmIP": ""}
    unwaited = {"idempotencyKey": new_id()}
    begun = make({}, **unwaited)
    assert begun.json()["status"] == "provisioning" and APPLIED not in begun.headers
    later = make(WAIT, **unwaited)
    assert later.json()["id"] == begun.json()["id"] and later.json()["status"] == "running"
    assert make({}, **unwaited).text == begun.text
    alice.post(f"{SANDBOXES}/{later.json()['id']}/hibernate")
    asleep = make(WAIT, **unwaited)
    assert asleep.json()["status"] == "hibernated", "its boot has ended"


def test_a_refused_create_is_refused_at_once(alice, bob):
    for persona, body, status in ((alice, {"size": "none"}, 400), (bob, {}, 402)):
        answer = persona.post(SANDBOXES, json=body, headers=persona.key_headers | WAIT)
        assert answer.status_code == status and APPLIED not in answer.headers


def test_a_preset_is_waited_for_in_any_case(alice):
    answer = alice.post(SANDBOXES, json={"template": "pi"},
                        headers=alice.key_headers | {"Prefer": "wait=0"})
    assert APPLIED not in answer.headers
    if answer.status_code == 201:
        assert answer.json()["templateStatus"] in ("ready", "failed")
        alice.delete(f"{SANDBOXES}/{answer.json()['id']}")


@pytest.fixture
def small_api(sim_stack, tmp_path):
    """One API process with few threads beside those of the stack: 3 wait for a status, 2 for one
    owner. Gives it and a client of it."""
    url = f"http://127.0.0.1:{free_ports.free_port(0)}"
    values = {"SVC_API_BIND": url.removeprefix("http://"), "SVC_API_WORKERS": "1",
              "SVC_API_THREADS": "20"}
    with (Process(sim_stack, "api", values, tmp_path / "api.log") as process,
          httpx.Client(base_url=url, timeout=60, trust_env=False) as client):
        until(lambda: health.answers(f"{url}/health"))
        yield process, client


@pytest.mark.slow
def test_a_create_that_finds_no_place_to_wait_in_is_answered_at_once(small_api, alice, make, made):
    _, client = small_api
    sandbox = make(WAIT).json()["id"]
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(client.get, f"{SANDBOXES}/{sandbox}?waitFor=hibernated&timeoutS=60",
                             headers=alice.key_headers) for _ in range(2)]
        time.sleep(5)
        answer = client.post(SANDBOXES, json={}, headers=alice.key_headers | WAIT)
        assert not any(wait.done() for wait in waits)
        alice.post(f"{SANDBOXES}/{sandbox}/hibernate")
    made.append(answer.json()["id"])
    assert answer.status_code == 201 and answer.json()["status"] == "provisioning"
    assert APPLIED not in answer.headers


def workers_of(pid):
    """The processes below that have no children."""
    below = children(pid)
    return [leaf for child in below for leaf in workers_of(child)] if below else [pid]


@pytest.mark.slow
def test_a_killed_worker_loses_the_answer_only(small_api, alice, made, fault):
    process, client = small_api
    key = {"idempotencyKey": new_id()}
    fault("runner.claimed", "sleep:6")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.post, SANDBOXES, json=key, headers=alice.key_headers | WAIT)
        until(fault.reached)
        sandbox = alice.post(SANDBOXES, json=key).json()["id"]
        made.append(sandbox)
        reading = pool.submit(client.get, f"{SANDBOXES}/{sandbox}?waitFor=running",
                              headers=alice.key_headers)
        time.sleep(2)
        assert not waiting.done() and not reading.done()
        (worker,) = workers_of(process.pid)
        os.kill(worker, signal.SIGKILL)
        for call in (waiting, reading):
            with pytest.raises(httpx.TransportError):
                call.result(timeout=20)
    until(lambda: health.answers(f"{client.base_url}/health"))
    again = client.post(SANDBOXES, json=key, headers=alice.key_headers | WAIT)
    assert again.status_code == 201 and again.headers[APPLIED] == "wait=30"
    assert (again.json()["id"], again.json()["status"]) == (sandbox, "running")


@pytest.mark.parametrize("body", [{}, {"template": "pi"}], ids=str)
def test_a_create_is_answered_though_postgres_goes_away_while_it_waits(sim_stack, alice, make,
                                                                       fault, body):
    fault("runner.claimed", "sleep:2")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(make, WAIT, **body)
        until(fault.reached)
        sim_stack.crash("postgres")
        time.sleep(3)  # longer than a wait is between two looks
        sim_stack.start("postgres")
        made = waiting.result().json()
    assert made["status"] in ("provisioning", "running")
    until(lambda: alice.get(f"{SANDBOXES}/{made['id']}").json().get("status") == "running")
