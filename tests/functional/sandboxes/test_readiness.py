"""`running` means that the service is ready: start commands and readiness ports through every
process.

`serve PORT [SECONDS]` is a server of simulated guests: it listens after that time; `ss` lists what
listens.
"""
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from models.ids import new_id
from tests.stack.database import query

SERVE = {"startCommand": "serve 3000 1", "readinessPort": 3000, "ports": [3000]}
LOG = "/var/log/svc/start.log"


@pytest.fixture
def sandbox(alice, made):
    made.append(alice.create()["id"])
    return made[-1]


def post(alice, path, **body):
    return alice.post(f"/v1/sandboxes/{path}", json=body)


def fork(alice, made, source, **body):
    answer = post(alice, f"{source}/fork", **body)
    assert answer.status_code == 201, answer.text
    made.append(answer.json()["id"])
    return made[-1]


def settled(alice, sandbox):
    """The sandbox once its boot has come to an end."""
    deadline = time.monotonic() + 60
    while (seen := alice.get(f"/v1/sandboxes/{sandbox}").json())["status"] == "provisioning":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return seen


def listening(alice, sandbox):
    return alice.exec(sandbox, "ss")["stdout"]


def starts(alice, sandbox):
    """How often the start command has run, once it has run at all."""
    deadline = time.monotonic() + 10
    while not (said := alice.exec(sandbox, "tail", "-c", "1000", LOG)["stdout"]):
        assert time.monotonic() < deadline
    return said.count("serving")


def test_a_fork_runs_once_its_service_listens_and_a_wake_does_not_start_it_again(
        alice, made, sandbox):
    one = fork(alice, made, sandbox, **SERVE)
    alice.wait_for(one, "running")
    assert listening(alice, one) == "3000\n" and starts(alice, one) == 1
    for _ in range(2):
        post(alice, f"{one}/hibernate")
        assert post(alice, f"{one}/wake").json()["status"] == "running"
    assert listening(alice, one) == "3000\n" and starts(alice, one) == 1


def test_a_service_that_comes_with_the_memory_is_not_started_again(alice, made, sandbox):
    one = fork(alice, made, sandbox, **SERVE)
    alice.wait_for(one, "running")
    assert starts(alice, one) == 1
    two = fork(alice, made, one, **SERVE)
    alice.wait_for(two, "running")
    assert listening(alice, two) == "3000\n" and starts(alice, two) == 1


def test_a_template_gates_running_too(alice, made, sandbox):
    name, taken = new_id("site"), post(alice, f"{sandbox}/snapshot").json()["id"]
    published = alice.post(f"/v1/templates/{name}/latest", json={"snapshotId": taken, **SERVE})
    assert published.status_code == 201, published.text
    one = alice.create(templateId=name, ports=[4000], skipAppProcesses=True)
    made.append(one["id"])
    assert sorted(one["portMap"].values()) == [3000, 4000]
    assert listening(alice, one["id"]) == "3000\n" and starts(alice, one["id"]) == 1
    assert alice.delete(f"/v1/templates/{name}/latest").status_code == 200
    post(alice, f"{one['id']}/hibernate")
    assert post(alice, f"{one['id']}/wake").json()["status"] == "running"
    assert listening(alice, one["id"]) == "3000\n"


def test_a_template_may_be_a_project_directory(alice, made, sandbox):
    alice.post(f"/v1/sandboxes/{sandbox}/files",
               json=[{"path": "/home/user/app.py", "content": "eA==", "mode": 420}])
    name, taken = new_id("site"), post(alice, f"{sandbox}/snapshot",
                                       restoreKind="project_only").json()
    assert taken["kind"] == "files_only"
    alice.post(f"/v1/templates/{name}/latest", json={"snapshotId": taken["id"],
                                                     **SERVE}).raise_for_status()
    one = alice.create(templateId=name, size="medium")
    made.append(one["id"])
    content = alice.get(f"/v1/sandboxes/{one['id']}/files",
                        params={"path": "/home/user/app.py"}).json()
    assert content == {"content": "eA=="} and listening(alice, one["id"]) == "3000\n"


def test_a_boot_that_waits_for_its_service_has_its_address_already(alice, made, sandbox):
    """What starts may call the guest gateway, which knows a sandbox by its address."""
    one = fork(alice, made, sandbox, **SERVE | {"startCommand": "serve 3000 2"})
    deadline = time.monotonic() + 60
    while not (seen := alice.get(f"/v1/sandboxes/{one}").json())["vmIP"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert seen["status"] == "provisioning"
    assert settled(alice, one)["vmIP"] == seen["vmIP"]


@pytest.mark.slow
def test_a_boot_whose_service_never_listens_runs_and_says_what_it_said(
        alice, sim_stack, made, sandbox):
    one = fork(alice, made, sandbox, **SERVE | {"startCommand": "echo no such module"})
    seen = settled(alice, one)
    assert seen["status"] == "running"
    for part in ("port 3000", LOG, "no such module"):
        assert part in seen["error"]
    with contextlib.closing(
        psycopg2.connect(sim_stack.settings.database_url)
    ) as link, link.cursor() as cursor:
        cursor.execute("SELECT body FROM events WHERE subject = %s", (one,))
        ((told,),) = cursor.fetchall()
    assert "sandbox.started" in told and "no such module" not in told
    assert "no such module" not in sim_stack.logs("node-ops", 1000), "it is for its owner only"
    alice.exec(one, "serve", "3000")
    assert "error" not in post(alice, f"{one}/wake").json()


@pytest.mark.slow
def test_a_wake_waits_for_the_readiness_port_it_is_given(alice, sandbox):
    post(alice, f"{sandbox}/hibernate")
    unready = post(alice, f"{sandbox}/wake", readinessPort=3000)
    assert unready.status_code == 200 and unready.json()["status"] == "running"
    assert "port 3000" in unready.json()["error"]
    assert alice.get(f"/v1/sandboxes/{sandbox}").json() == unready.json()
    post(alice, f"{sandbox}/exec", cmd="serve 3000 1", detached=True)
    woken = post(alice, f"{sandbox}/wake", readinessPort=3000)
    assert woken.status_code == 200 and "error" not in woken.json() and listening(
        alice, sandbox) == "3000\n"


def test_a_sandbox_runs_and_can_be_used_while_its_wake_waits_for_a_port(alice, sandbox):
    post(alice, f"{sandbox}/hibernate")
    with ThreadPoolExecutor() as pool:
        waking = pool.submit(post, alice, f"{sandbox}/wake", readinessPort=3000)
        alice.wait_for(sandbox, "running")
        assert not waking.done(), "the wake waits"
        assert alice.exec(sandbox, "serve", "3000")["stdout"] == "serving 3000\n"
        assert "error" not in waking.result().json()


@pytest.mark.slow
def test_a_wakes_own_readiness_port_holds_for_that_wake_only(alice, made, sandbox):
    one = fork(alice, made, sandbox, **SERVE)
    alice.wait_for(one, "running")
    for again in range(2):
        post(alice, f"{one}/hibernate")
        asked = {} if again else {"readinessPort": 9999}
        woken = post(alice, f"{one}/wake", **asked).json()
        assert ("port 9999" in woken.get("error", "")) is not bool(again)
    assert woken["status"] == "running" and starts(alice, one) == 1


@pytest.mark.slow
def test_a_wake_with_another_port_still_starts_the_service_it_is_pinned_to(alice, made, sandbox):
    one = fork(alice, made, sandbox, **SERVE | {"startCommand": "echo broken"})
    assert "port 3000" in settled(alice, one)["error"]
    alice.exec(one, "serve", "4000")
    assert "error" not in post(alice, f"{one}/wake", readinessPort=4000).json()
    assert alice.exec(one, "tail", "-c", "1000", LOG)["stdout"].count("broken") == 2


def test_the_own_command_of_a_fork_runs_although_its_port_is_open_in_the_copied_memory(
        alice, made, sandbox):
    one = fork(alice, made, sandbox, **SERVE)
    alice.wait_for(one, "running")
    assert starts(alice, one) == 1
    own = SERVE | {"startCommand": "serve 3000 0.5"}
    two = fork(alice, made, one, **own)
    alice.wait_for(two, "running")
    assert listening(alice, two) == "3000\n" and starts(alice, two) == 2
    three = fork(alice, made, two, **own)
    alice.wait_for(three, "running")
    assert starts(alice, three) == 2, "it is the source's own pinned command by now"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["runner.parking", "runner.parked", "service.started"])
def test_a_worker_that_dies_while_a_service_is_waited_for_starts_it_once(alice, made, sandbox,
                                                                         fault, point):
    fault(point)
    one = fork(alice, made, sandbox, **SERVE)
    alice.wait_for(one, "running")
    assert fault.reached() and starts(alice, one) == 1


@pytest.mark.slow
def test_waits_of_one_owner_do_not_hold_up_another(alice, mallory, made, sandbox):
    def create_s():
        began = time.monotonic()
        made_now = mallory.create()["id"]
        took = time.monotonic() - began
        mallory.delete(f"/v1/sandboxes/{made_now}")
        return took

    alone = min(create_s() for _ in range(3))
    asleep = [fork(alice, made, sandbox) for _ in range(6)]
    for one in asleep:
        alice.wait_for(one, "running")
        post(alice, f"{one}/hibernate")
    with ThreadPoolExecutor(len(asleep)) as pool:
        waits = [pool.submit(post, alice, f"{one}/wake", readinessPort=9999) for one in asleep]
        for one in asleep:
            alice.wait_for(one, "running")
        beside = []
        for _ in range(3):
            took = create_s()
            if any(wait.done() for wait in waits):
                break
            beside.append(took)
        assert beside, "they all wait, more than there are slots"
        assert all("port 9999" in wait.result().json()["error"] for wait in waits)
    assert min(beside) < 10 * alone


@pytest.mark.parametrize("more", [{"readinessPort": 5000}, {"ports": [5000]}])
def test_a_wake_may_ask_for_more_while_the_one_before_waits_for_its_port(alice, sandbox, more):
    post(alice, f"{sandbox}/hibernate")
    with ThreadPoolExecutor() as pool:
        waking = pool.submit(post, alice, f"{sandbox}/wake", readinessPort=3000)
        alice.wait_for(sandbox, "running")
        alice.exec(sandbox, "serve", "5000")
        second = post(alice, f"{sandbox}/wake", **more)
        assert second.status_code == 200 and "error" not in second.json(), second.text
        assert set(second.json()["portMap"].values()) == set(more.get("ports", []))
        assert waking.result().status_code == 200


def test_a_wake_of_a_running_sandbox_waits_for_another_port(alice, sandbox):
    post(alice, f"{sandbox}/exec", cmd="serve 5000 1", detached=True)
    assert post(alice, f"{sandbox}/wake", readinessPort=5000).json()["status"] == "running"
    assert listening(alice, sandbox) == "5000\n"


@pytest.mark.slow
def test_a_sandbox_whose_service_is_not_ready_falls_asleep_when_idle(alice, sim_stack, sandbox):
    """And from then on, as when it is deleted, nothing is told of its service."""
    post(alice, f"{sandbox}/extend", timeout=1)
    post(alice, f"{sandbox}/wake", readinessPort=3000)
    alice.wait_for(sandbox, "hibernated", timeout_s=30)
    assert query(sim_stack, "SELECT 1 FROM operations WHERE sandbox_id = %s AND kind = 'wake'"
                            " AND operator_error LIKE '%%port 3000%%'", sandbox)
    assert "error" not in alice.get(f"/v1/sandboxes/{sandbox}").json()
    post(alice, f"{sandbox}/extend", timeout=600)
    assert "port 3000" in post(alice, f"{sandbox}/wake", readinessPort=3000).json()["error"]
    assert "error" not in alice.delete(f"/v1/sandboxes/{sandbox}").json()
