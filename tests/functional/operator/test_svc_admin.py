"""`bin/svc-admin` as an operator types it, on a whole stack with the simulated driver."""
import json
import subprocess
import time

import pytest

from bin.stack.site import ROOT
from nodeworker.hypervisor.factory import make_driver
from tests.stack.database import query
from tests.stack.operator import run_operator
from tests.stack.waiting import until


def checked(code, printed, complaint, *, ok):
    """What a command printed, or with `ok=False` its one-sentence complaint."""
    assert (code == 0) is ok, printed + complaint
    assert "Traceback" not in complaint
    if ok:
        return printed
    assert code == 1 and printed == ""
    (line,) = complaint.splitlines()
    assert line.startswith("Error: ")
    return line


@pytest.fixture
def program(sim_stack, tmp_path):
    """Runs `bin/svc-admin` from anywhere, in a process of its own."""

    def run(*arguments, ok=True, **changes):
        done = subprocess.run([ROOT / "bin" / "svc-admin", *arguments], cwd=tmp_path,
                              env={**sim_stack.env, **changes}, capture_output=True, text=True,
                              timeout=90, check=False)
        return checked(done.returncode, done.stdout, done.stderr, ok=ok)

    return run


@pytest.fixture
def svc_admin(sim_stack):
    """Runs the same command in this process."""

    def run(*arguments, ok=True):
        return checked(*run_operator(sim_stack.env, *arguments), ok=ok)

    run.json = lambda *arguments: json.loads(run(*arguments, "--json"))
    return run


@pytest.fixture
def sandbox(alice):
    sandbox_id = alice.create(env={"TOKEN": "hunter2"})["id"]
    yield sandbox_id
    alice.delete(f"/v1/sandboxes/{sandbox_id}")


def says(run, wanted, timeout_s=40):
    """Run a command until it says what it should."""
    deadline = time.monotonic() + timeout_s
    while wanted not in (text := run()):
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
    return text


def table(text):
    """Lines of an aligned table as lists of cells."""
    return [
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()
    ]


def test_nodes(sim_stack, alice, svc_admin, sandbox):
    node_id = sim_stack.settings.node_id
    node = next(node for node in svc_admin.json("node-list") if node["id"] == node_id)
    assert node["alive"] and node["accepting"]
    assert (node["vcpus"], node["mem_mb"]) == (512, 524288)
    assert node["most_vcpus"] in (512, 4096) and node["most_mem_mb"] in (524288, 8 * 524288)
    assert (
        node["used_vcpus"] >= 1
        and node["used_mem_mb"] >= 1024
        and node["sandboxes"]["running"] >= 1
    )
    assert node["stopped_machines"] in ({}, {"kept": 0, "spares": 0, "prepared": 0})
    assert "small" in node["warm_sizes"] and node["host_tuple"]["machine"] == "simulated"
    assert node["disk_mb"] >= node["disk_free_mb"] > node["disk_floor_mb"] == 4096
    heading, *lines = table(svc_admin("node-list"))
    line = next(line for line in lines if line[0] == node_id)
    assert heading == [
        "NODE", "ADDRESS", "STATE", "CPUS USED", "VCPUS", "MEMORY MB", "DISK MB", "SANDBOXES",
        "STOPPED", "WARM SIZES", "RUNS", "LANES"
    ]
    assert line[-1] == "archive, bulk, ctl, deploy, ops"
    assert line[:3] == [node["id"], "127.0.0.1", "alive, open"]
    assert float(line[3]) >= 0 and line[4].partition("/")[2] in ("512", "4096")
    assert [node["id"], "small (1 vCPU, 1024 MB)", "-", "baked"] in [
        line[:4] for line in table(svc_admin("bake-list"))
    ]


def test_a_closed_node_takes_nothing_new_and_keeps_what_it_has(sim_stack, alice, svc_admin,
                                                               sandbox):
    node_id = sim_stack.settings.node_id
    assert svc_admin("node-close", node_id) == "closed\n"
    try:
        answer = alice.post("/v1/sandboxes", json={})
        assert answer.status_code == 503 and "take no sandboxes at present" in answer.json(
        )["error"]
        assert answer.headers["Retry-After"]
        assert alice.exec(sandbox, "echo", "still")["stdout"] == "still\n"
        assert "closed" in svc_admin("node-list") and f"Node {node_id} is closed" in svc_admin(
            "explain", sandbox)
    finally:
        assert svc_admin("node-open", node_id) == "open\n"
    alice.delete(f"/v1/sandboxes/{alice.create()['id']}")


def test_plans(svc_admin, program):
    rows = dict(table(program("plan-list"))[1:])
    assert rows["always_on"] == "fleet (12 vCPU, 36864 MB)" and rows["free"] == "none"
    assert (
        rows["legacy_max"]
        == "small (1 vCPU, 1024 MB), medium (2 vCPU, 2048 MB), large (4 vCPU, 4096 MB)"
    )
    assert len(rows) == 8 == len(svc_admin.json("plan-list"))


def test_accounts(alice, svc_admin):
    people = {row["email"]: row for row in svc_admin.json("user-list")}
    assert (
        people[alice.email]["plan"] == "legacy_pro" and people[alice.email]["disabled_at"] is None
    )
    assert people[alice.email].keys() == {"id", "email", "plan", "created_at", "disabled_at"}


def test_sandboxes_of_an_owner(alice, mallory, svc_admin, sandbox):
    other = mallory.create()["id"]
    alice.post(f"/v1/sandboxes/{sandbox}/hibernate")
    assert table(
        svc_admin("sandbox-list", alice.email.upper(), "--status", "hibernated", "--limit",
                  "1"))[1][:4] == [sandbox, "hibernated", "-", alice.stack.settings.node_id]
    listed = {row["id"]: row for row in svc_admin.json("sandbox-list", alice.email)}
    assert (
        other not in listed
        and listed[sandbox]["size"] == "small"
        and listed[sandbox]["task"] is None
    )
    assert "more: --offset 1" in svc_admin("sandbox-list", alice.email, "--limit", "1")
    mallory.delete(f"/v1/sandboxes/{other}")
    assert other not in svc_admin("sandbox-list", mallory.email)
    assert other in svc_admin("sandbox-list", mallory.email, "--all")
    assert other in svc_admin("sandbox-list", mallory.email, "--status", "stopped")


def test_an_account_is_looked_up_by_its_address_or_its_id(alice, svc_admin, sandbox):
    (owner,) = [row["id"] for row in svc_admin.json("user-list") if row["email"] == alice.email]
    assert svc_admin.json("sandbox-list", owner) == svc_admin.json("sandbox-list", alice.email)


@pytest.mark.parametrize("command", [
    ("sandbox-list",), ("disk-usage",), ("snapshot-list",), ("deploy-list",), ("template-list",),
    ("credit", "show"), ("llm", "usage"),
], ids=" ".join)
def test_the_account_of_builders_is_looked_at_like_any_other(svc_admin, command):
    svc_admin(*command, "svc-deploys")
    assert "There is no account svc-deplois" in svc_admin(*command, "svc-deplois", ok=False)


@pytest.mark.slow
def test_operations_and_why_one_failed(sim_stack, alice, svc_admin, sandbox):
    alice.post(f"/v1/sandboxes/{sandbox}/hibernate")
    make_driver(sim_stack.settings).destroy(sandbox)
    assert alice.post(f"/v1/sandboxes/{sandbox}/wake").status_code == 503
    alice.wait_for(sandbox, "stopped")  # the reconciler ends what has lost its files
    stop, *rows = svc_admin.json("operation-list", "--sandbox", sandbox)
    assert (stop["kind"], stop["state"], stop["requested_by"]) == ("stop", "succeeded",
                                                                   "reconciler")
    assert [(row["kind"], row["state"], row["number"]) for row in rows] == [
        ("wake", "failed", 3), ("hibernate", "succeeded", 2), ("boot", "succeeded", 1)]
    wake = str(rows[0]["id"])
    assert table(svc_admin("operation-list", "--failed", "--limit",
                           "1"))[1][:4] == [wake, sandbox, "wake", "failed"]
    assert svc_admin("operation-list", "--open", "--sandbox", sandbox) == "none\n"
    first = svc_admin("operation-list", "--sandbox", sandbox, "--node", sim_stack.settings.node_id,
                      "--limit", "3")
    assert first.splitlines()[-1] == f"more: --before {rows[1]['id']}"
    rest = svc_admin("operation-list", "--sandbox", sandbox, "--before", str(rows[1]["id"]))
    assert [line[2] for line in table(rest)[1:]] == ["boot"]
    assert svc_admin("operation-list", "--node", "elsewhere") == "none\n"
    told = svc_admin("explain", wake)
    assert (
        "The owner is told: The sandbox's files are not on its node." in told
        and "For operators: VmNotFound" in told
    )


def test_force_stop_is_the_owners_delete_and_says_who_did_it(sim_stack, alice, svc_admin, sandbox):
    assert svc_admin("sandbox-stop", sandbox) == "stopped\n"
    assert alice.get(f"/v1/sandboxes/{sandbox}").json()["status"] == "stopped"
    assert make_driver(sim_stack.settings).inspect(sandbox) is None
    assert query(sim_stack, "SELECT count(*) FROM port_bindings WHERE sandbox_id = %s",
                 sandbox) == [(0, )]
    (body, ) = query(sim_stack,
                     "SELECT body FROM events WHERE subject = %s AND type = 'sandbox.stopped'",
                     sandbox)[0]
    assert json.loads(body)["data"]["reason"] == "stopped_by_operator"
    assert svc_admin.json("operation-list", "--sandbox", sandbox)[0]["requested_by"] == "operator"
    assert svc_admin("sandbox-stop", sandbox) == "stopped\n", "again is no error"
    assert "by the operator and has succeeded" in svc_admin("explain", sandbox)


@pytest.mark.slow
def test_force_stop_of_what_is_still_booting(sim_stack, alice, svc_admin, fault):
    fault("create.recorded", "sleep:9")
    sandbox_id = alice.post("/v1/sandboxes", json={}).json()["id"]
    until(fault.reached)
    fault("stop.synced", "sleep:3")
    assert "the operation goes on" in svc_admin("sandbox-stop", sandbox_id, "--wait", "0", ok=False)
    assert svc_admin("sandbox-stop", sandbox_id) == "stopped\n"


@pytest.mark.slow
def test_explain_while_no_worker_runs_while_one_does_and_while_another_operation_must_end(
    sim_stack, alice, svc_admin, fault
):
    sim_stack.crash("node-ops")
    try:
        source = alice.post("/v1/sandboxes", json={}).json()["id"]
        told = svc_admin("explain", source)
        queue = f"node.{sim_stack.settings.node_id}.ops"
        assert "No worker has taken it yet." in told and "messages are in queue " + queue in told
        assert f" 0 messages are in queue {queue}" not in told
    finally:
        sim_stack.start("node-ops")
    alice.wait_for(source, "running")
    fault("snapshot.begun", "sleep:6")
    fork = alice.post(f"/v1/sandboxes/{source}/fork", json={}).json()["id"]
    told = says(lambda: svc_admin("explain", fork), "is at it (attempt 1 of 4")
    assert "has succeeded, and fails with it:" in told and f"the snapshot of {source}" in told
    found = svc_admin.json("explain", fork)
    assert found["operation"]["state"] == "waiting" and found["sandbox"]["status"] == "provisioning"
    alice.wait_for(fork, "running")
    assert "It falls asleep in" in svc_admin("explain", fork)
    for sandbox_id in (source, fork):
        alice.delete(f"/v1/sandboxes/{sandbox_id}")


def test_no_command_shows_a_secret(sim_stack, alice, svc_admin, sandbox):
    (token,) = query(sim_stack, "SELECT agent_token FROM sandboxes WHERE id = %s", sandbox)[0]
    for command in (("explain", sandbox), ("sandbox-list", alice.email, "--all"), ("node-list",),
                    ("operation-list", "--sandbox", sandbox)):
        printed = svc_admin(*command, "--json")  # which has every field of a record
        assert printed and "hunter2" not in printed and token not in printed


@pytest.mark.parametrize(("arguments", "complaint"), [
    (("node-close", "nowhere"), "There is no node nowhere"),
    (("sandbox-stop", "x"), "There is no sandbox x"),
    (("sandbox-list", "nobody@example.test"), "There is no account"),
    (("explain", "99999"), "There is neither"),
])
def test_a_mistake_is_one_sentence(program, arguments, complaint):
    assert complaint in program(*arguments, ok=False)


@pytest.mark.slow
def test_servers_that_are_away_are_one_sentence(program, sandbox):
    away = program("node-list", ok=False, SVC_DATABASE_URL="postgresql://svc@127.0.0.1:1/svc")
    assert "The database does not answer" in away
    assert "SVC_API_WORKERS" in program("node-list", ok=False, SVC_API_WORKERS="many")
