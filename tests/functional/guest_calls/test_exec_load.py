"""A hundred execs at once on one sandbox, and more than the API bears: short calls are answered as
if nothing was."""
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import psycopg2
import pytest

from bin.stack import free_ports, health
from tests.stack.processes import Process

AT_ONCE = 100
THREADS = 46  # of the small API below: 16 for calls on the data road, 12 of them for one owner


@pytest.fixture(scope="module")
def sandbox(alice):
    made = alice.create()
    yield made["id"]
    alice.delete(f"/v1/sandboxes/{made['id']}")


@contextmanager
def client(url):
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    with httpx.Client(base_url=url, timeout=90, trust_env=False, limits=limits) as http:
        yield http


@pytest.fixture
def in_flight(sim_stack):
    """Asks how many calls keep a sandbox awake right now."""
    link = psycopg2.connect(sim_stack.site.values["SVC_DATABASE_URL"])
    link.autocommit = True

    def count(sandbox):
        with link.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM activities WHERE sandbox_id = %s", (sandbox,))
            return cursor.fetchone()[0]

    yield count
    link.close()


def sleep(http, persona, sandbox, seconds):
    return http.post(f"/v1/sandboxes/{sandbox}/exec", json={"cmd": "sleep", "args": [str(seconds)]},
                     headers=persona.key_headers)


def median_s(call, times=30):
    """The middle duration of an answered `call`."""
    durations = []
    for _ in range(times):
        began = time.monotonic()
        assert call().status_code == 200
        durations.append(time.monotonic() - began)
    return statistics.median(durations)


def until(count, sandbox, wanted):
    deadline = time.monotonic() + 60
    while (seen := count(sandbox)) != wanted:
        assert time.monotonic() < deadline, f"{seen} calls in flight, wanted {wanted}"
        time.sleep(0.05)


@pytest.mark.alone
def test_a_hundred_at_once_on_one_sandbox_while_the_api_answers_as_ever(
        sim_stack, alice, sandbox, in_flight):
    with client(sim_stack.api_url) as http, ThreadPoolExecutor(AT_ONCE) as pool:
        reads = [
            lambda: http.get(f"/v1/sandboxes/{sandbox}", headers=alice.key_headers),
            lambda: http.get("/health")
        ]
        idle = [median_s(read) for read in reads]
        execs = [pool.submit(sleep, http, alice, sandbox, 7) for _ in range(AT_ONCE)]
        until(in_flight, sandbox, AT_ONCE)
        loaded = [median_s(read) for read in reads]
        assert in_flight(sandbox) == AT_ONCE, "they ended before the measurement did"
        answers = [future.result() for future in execs]
    assert {answer.status_code
            for answer in answers} == {200}, [answer.text for answer in answers][:3]
    assert {answer.json()["exitCode"] for answer in answers} == {0}
    assert all(busy < 10 * quiet for busy, quiet in zip(loaded, idle)), (loaded, idle)


@pytest.fixture
def small_api(sim_stack, tmp_path):
    """One API process with few threads beside those of the stack; gives its URL."""
    url = f"http://127.0.0.1:{free_ports.free_port(0)}"
    values = {
        "SVC_API_BIND": url.removeprefix("http://"), "SVC_API_WORKERS": "1",
        "SVC_API_THREADS": str(THREADS)
    }
    with Process(sim_stack, "api", values, tmp_path / "api.log"):
        deadline = time.monotonic() + 60
        while not health.answers(f"{url}/health"):
            assert time.monotonic() < deadline, (tmp_path / "api.log").read_text()
            time.sleep(0.1)
        yield url


@pytest.mark.slow
def test_what_is_too_much_is_503_and_starves_nobody(small_api, alice, mallory, sandbox, in_flight):
    others = mallory.create()["id"]
    with client(small_api) as http, ThreadPoolExecutor(60) as pool:
        execs = [pool.submit(sleep, http, alice, sandbox, 6) for _ in range(50)]
        until(in_flight, sandbox, 12)
        assert sleep(http, mallory, others, 0).status_code == 200, "one owner has not all of it"
        filling = [pool.submit(sleep, http, mallory, others, 4) for _ in range(4)]
        until(in_flight, others, 4)
        assert sleep(http, mallory, others, 0).status_code == 503, "the lane is full"
        read = http.get(f"/v1/sandboxes/{sandbox}", headers=alice.key_headers)
        made = http.post("/v1/sandboxes", json={}, headers=alice.key_headers)
        ended = http.delete(f"/v1/sandboxes/{made.json()['id']}", headers=alice.key_headers)
        assert (read.status_code, made.status_code, ended.status_code) == (200, 201, 200)
        assert in_flight(sandbox) == 12
        answers = [future.result() for future in execs]
        assert {future.result().status_code for future in filling} == {200}
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(refused) == 38 and {answer.status_code for answer in answers} == {200, 503}
    assert {answer.headers["Retry-After"] for answer in refused} == {"2"}
    assert "Too many calls are waiting" in refused[0].json()["error"]
    with client(small_api) as http:
        assert sleep(http, alice, sandbox, 0).status_code == 200, "places are given back"
    mallory.delete(f"/v1/sandboxes/{others}")
