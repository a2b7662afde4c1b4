"""`running` means that the service is ready: start commands and readiness ports through every
process.

`serve PORT [SECONDS]` is a server of simulated guests: it listens after that time; `ss` lists what
listens.
"""
import contextlib
import time

import psycopg2
import pytest

from models.database import new_id

SERVE = {"startCommand": "serve 3000 1", "readinessPort": 3000, "ports": [3000]}
LOG = "/var/log/svc/start.log"


@pytest.fixture
def made(alice):
    """Ids of sandboxes to delete afterwards."""
    ids = []
    yield ids
    for sandbox in ids:
        alice.delete(f"/v1/sandboxes/{sandbox}")


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


def test_a_boot_whose_service_never_listens_ends_as_stopped_and_says_what_it_said(
        alice, sim_stack, made, sandbox):
    one = fork(alice, made, sandbox, **SERVE | {"startCommand": "echo no such module"})
    deadline = time.monotonic() + 60
    while (seen := alice.get(f"/v1/sandboxes/{one}").json())["status"] == "provisioning":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert seen["status"] == "stopped"
    for part in ("port 3000", LOG, "no such module"):
        assert part in seen["error"]
    with contextlib.closing(
        psycopg2.connect(sim_stack.settings.database_url)
    ) as link, link.cursor() as cursor:
        cursor.execute("SELECT body FROM events WHERE subject = %s", (one,))
        (told,) = cursor.fetchall()
    assert (
        "port 3000" in told[0] and "no such module" not in told[0]
    ), "what it said is for its owner only"
    assert "no such module" not in sim_stack.logs("node-ops", 1000)


def test_a_wake_waits_for_the_readiness_port_it_is_given(alice, sandbox):
    post(alice, f"{sandbox}/hibernate")
    refused = post(alice, f"{sandbox}/wake", readinessPort=3000)
    assert refused.status_code == 503 and "port 3000" in refused.json()["error"]
    seen = alice.get(f"/v1/sandboxes/{sandbox}").json()
    assert seen["status"] == "running" and "port 3000" in seen["error"], "its owner can see to it"
    assert post(alice, f"{sandbox}/wake").status_code == 503, "it is still not what it should be"
    post(alice, f"{sandbox}/exec", cmd="serve 3000 1", detached=True)
    woken = post(alice, f"{sandbox}/wake")
    assert woken.status_code == 200 and "error" not in woken.json() and listening(
        alice, sandbox) == "3000\n"


def test_a_wake_of_a_running_sandbox_waits_for_another_port(alice, sandbox):
    post(alice, f"{sandbox}/exec", cmd="serve 5000 1", detached=True)
    assert post(alice, f"{sandbox}/wake", readinessPort=5000).json()["status"] == "running"
    assert listening(alice, sandbox) == "5000\n"


def test_a_sandbox_whose_service_is_not_ready_falls_asleep_when_idle(alice, sandbox):
    post(alice, f"{sandbox}/extend", timeout=1)
    assert post(alice, f"{sandbox}/wake", readinessPort=3000).status_code == 503
    alice.wait_for(sandbox, "hibernated", timeout_s=30)
