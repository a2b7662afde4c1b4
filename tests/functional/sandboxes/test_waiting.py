"""`GET /v1/sandboxes/{id}?waitFor=STATUS`: clients that do not poll, through every process."""
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from bin.stack import free_ports, health
from models.ids import new_id
from tests.stack.processes import Process
from tests.stack.waiting import until

SANDBOXES = "/v1/sandboxes"
# Of one API process: 12 wait for a status, 9 of them for one owner.
THREADS, OF_ALL, OF_ONE = 80, 12, 9


@pytest.fixture
def sandbox(alice, made):
    """A running one."""
    made.append(alice.create()["id"])
    return made[-1]


@pytest.fixture
def slow_boot(fault):
    """The next boot takes four seconds longer."""
    return lambda: fault("runner.claimed", "sleep:4")


def wait_for(persona, sandbox, status, timeout_s=30, **options):
    return persona.get(f"{SANDBOXES}/{sandbox}",
                       params={"waitFor": status, "timeoutS": timeout_s}, **options)


def timed(call, *args, **options):
    began = time.monotonic()
    answer = call(*args, **options)
    return answer, time.monotonic() - began


def create(persona, made):
    answer = persona.post(SANDBOXES, json={})
    made.append(answer.json()["id"])
    return made[-1]


def test_it_answers_as_soon_as_the_sandbox_runs(alice, made, slow_boot):
    slow_boot()
    sandbox = create(alice, made)
    answer, took_s = timed(wait_for, alice, sandbox, "running")
    assert answer.status_code == 200 and answer.json()["status"] == "running"
    assert answer.json() == alice.get(f"{SANDBOXES}/{sandbox}").json()
    assert 1 < took_s < 20


def test_a_status_that_is_there_already_is_answered_at_once(alice, sandbox):
    answer, took_s = timed(wait_for, alice, sandbox, "running")
    assert answer.json()["status"] == "running" and took_s < 5
    assert wait_for(alice, sandbox, "running", timeout_s=0).json() == answer.json()


def test_when_the_time_is_up_it_answers_what_is_true(alice, sandbox):
    answer, took_s = timed(wait_for, alice, sandbox, "hibernated", timeout_s=1)
    assert answer.status_code == 200 and answer.json()["status"] == "running"
    assert 0.9 < took_s < 5


def test_it_waits_through_other_steps_for_the_one_it_is_asked_for(alice, sandbox):
    with ThreadPoolExecutor() as pool:
        asleep = pool.submit(wait_for, alice, sandbox, "hibernated")
        alice.post(f"{SANDBOXES}/{sandbox}/snapshot")
        assert not asleep.done()
        alice.post(f"{SANDBOXES}/{sandbox}/hibernate")
        assert asleep.result().json()["status"] == "hibernated"
        awake = pool.submit(wait_for, alice, sandbox, "running")
        time.sleep(0.5)
        assert not awake.done()
        alice.post(f"{SANDBOXES}/{sandbox}/wake")
        assert awake.result().json()["status"] == "running"


def test_an_operation_that_leads_away_is_waited_out(alice, sandbox, fault):
    """It still says `running` while it is put to sleep."""
    fault("runner.claimed", "sleep:2")
    with ThreadPoolExecutor() as pool:
        hibernating = pool.submit(alice.post, f"{SANDBOXES}/{sandbox}/hibernate")
        until(fault.reached)
        assert alice.get(f"{SANDBOXES}/{sandbox}").json()["status"] == "running"
        running = pool.submit(wait_for, alice, sandbox, "running")
        assert hibernating.result().json()["status"] == "hibernated" and not running.done()
        alice.post(f"{SANDBOXES}/{sandbox}/wake")
        assert running.result().json()["status"] == "running"


def test_what_can_come_no_more_is_not_waited_for(alice, sandbox):
    answer, took_s = timed(wait_for, alice, sandbox, "provisioning")
    assert answer.json()["status"] == "running" and took_s < 5
    alice.delete(f"{SANDBOXES}/{sandbox}")
    for status in ("running", "hibernated", "stopped"):
        answer, took_s = timed(wait_for, alice, sandbox, status)
        assert answer.status_code == 200 and answer.json()["status"] == "stopped" and took_s < 5


def test_a_boot_that_ends_badly_ends_the_wait(alice, sim_stack, made, slow_boot):
    slow_boot()
    sandbox = create(alice, made)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(timed, wait_for, alice, sandbox, "running")
        time.sleep(0.5)
        alice.delete(f"{SANDBOXES}/{sandbox}")
        answer, took_s = waiting.result()
    assert answer.status_code == 200 and answer.json()["status"] == "stopped" and took_s < 20


def test_a_sandbox_deleted_meanwhile_ends_the_wait_as_get_would_answer(alice, sandbox):
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait_for, alice, sandbox, "hibernated", timeout_s=60)
        time.sleep(0.5)
        alice.delete(f"{SANDBOXES}/{sandbox}")
        answer = waiting.result()
    then = alice.get(f"{SANDBOXES}/{sandbox}")
    assert (answer.status_code, answer.json()) == (then.status_code, then.json())


def test_the_ids_of_nobody_and_of_others_are_what_they_are_without_waiting(alice, mallory, sandbox):
    assert wait_for(alice, new_id(), "running").status_code == 404
    assert wait_for(mallory, sandbox, "hibernated").status_code == 403
    pinned = alice.key_headers | {"X-Svc-Node": "elsewhere"}
    assert wait_for(alice, sandbox, "hibernated", headers=pinned).status_code == 421


@pytest.mark.parametrize(("asked", "named"), [
    ("waitFor=ready", "waitFor"), ("waitFor=", "waitFor"),
    ("waitFor=running&timeoutS=61", "timeoutS"),
    ("waitFor=running&timeoutS=-1", "timeoutS"), ("waitFor=running&timeoutS=1.5", "timeoutS"),
    ("waitFor=running&timeoutS=soon", "timeoutS"), ("timeoutS=5", "timeoutS"),
    ("waitfor=running", "waitfor"), ("waitFor=running&waitFor=stopped", "waitFor"),
])
def test_a_bad_query_is_400_and_named(alice, sandbox, asked, named):
    answer = alice.get(f"{SANDBOXES}/{sandbox}?{asked}")
    assert answer.status_code == 400 and answer.json()["error"].startswith(f"{named}: ")


@pytest.fixture
def small_api(sim_stack, tmp_path):
    """One API process with few threads beside those of the stack, and a client of it."""
    url = f"http://127.0.0.1:{free_ports.free_port(0)}"
    values = {"SVC_API_BIND": url.removeprefix("http://"), "SVC_API_WORKERS": "1",
              "SVC_API_THREADS": str(THREADS)}
    limits = httpx.Limits(max_connections=200)
    with (Process(sim_stack, "api", values, tmp_path / "api.log"),
          httpx.Client(base_url=url, timeout=60, trust_env=False, limits=limits) as client):
        until(lambda: health.answers(f"{url}/health"))
        yield client


def test_many_that_wait_take_no_thread_from_others_nor_from_their_owners_other_calls(
        small_api, alice, mallory, sandbox):
    def get(persona, sandbox, **params):
        return small_api.get(f"{SANDBOXES}/{sandbox}", headers=persona.key_headers, params=params)

    def wait(persona, sandbox, timeout_s):
        return get(persona, sandbox, waitFor="hibernated", timeoutS=timeout_s)

    others = mallory.create()["id"]
    with ThreadPoolExecutor(100) as pool:
        crowd = [pool.submit(wait, alice, sandbox, 30) for _ in range(60)]
        until(lambda: sum(call.done() for call in crowd) == 60 - OF_ONE)
        refused = [call.result() for call in crowd if call.done()]
        assert {answer.status_code for answer in refused} == {503}
        assert all(answer.headers["Retry-After"] == "2" for answer in refused)
        for persona, their in ((mallory, others), (alice, sandbox)):
            for params in ({}, {"waitFor": "running"}):
                assert get(persona, their, **params).json()["status"] == "running"
        assert sum(call.done() for call in crowd) == 60 - OF_ONE, "nobody waited for their end"
        assert wait(mallory, others, 0).status_code == 200, "the class is not one owner's"
        for action in ("hibernate", "wake"):
            answer = small_api.post(f"{SANDBOXES}/{sandbox}/{action}", headers=alice.key_headers)
            assert answer.status_code == 200
        assert {call.result().status_code for call in crowd} == {200, 503}
        assert wait(alice, sandbox, 0).status_code == 200, "places are given back"
    mallory.delete(f"{SANDBOXES}/{others}")


def test_it_goes_on_when_postgres_was_away(sim_stack, alice, made, slow_boot):
    """The wait may be 503, as any call then; it never misses what happened meanwhile."""
    slow_boot()
    sandbox = create(alice, made)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait_for, alice, sandbox, "running", timeout_s=60)
        time.sleep(0.5)
        sim_stack.crash("postgres")
        sim_stack.start("postgres")
        answer, took_s = timed(waiting.result)
    assert took_s < 30
    assert answer.status_code == 503 or answer.json()["status"] == "running"
    until(lambda: wait_for(alice, sandbox, "running").json().get("status") == "running")
