"""A stopped sandbox keeps no secret, and nothing large: its row has neither variables nor token,
and what was made of it has what it needs of its own. What starts its agent server, and its start
command, stay for forks of its snapshots, as long as there is one."""
import pytest

from models.database import connect, connection, database
from models.sandboxes import AgentServer, Sandbox
from tests.stack.waiting import becomes

SOURCE = "serve"


@pytest.fixture
def rows(sim_stack):
    connect(sim_stack.settings.database_url, pool_size=2)
    yield
    database.close_all()


def secrets_of(sandbox_id):
    with connection():
        row = Sandbox.get_by_id(sandbox_id)
    return row.env, row.agent_token


def test_a_deleted_sandbox_keeps_no_secret_and_its_snapshots_keep_their_variables(alice, rows):
    made = alice.create(env={"SECRET": "hunter2", "MODE": "a"})["id"]
    env, token = secrets_of(made)
    assert env == {"SECRET": "hunter2", "MODE": "a"} and token
    whole = alice.post(f"/v1/sandboxes/{made}/snapshot").json()["id"]
    files = alice.post(f"/v1/sandboxes/{made}/tarball").json()["id"]
    assert alice.post("/v1/templates/with-secret/latest", json={"snapshotId": whole}).is_success
    alice.delete(f"/v1/sandboxes/{made}")
    assert secrets_of(made) == ({}, "")
    copies = [alice.post("/v1/sandboxes/fork", json={"snapshotId": taken}).json()["id"]
              for taken in (whole, files)]
    copies.append(alice.create(templateId="with-secret")["id"])
    for copy in copies:
        alice.wait_for(copy, "running")
        variables = alice.exec(copy, "env")["stdout"].splitlines()
        assert {"SECRET=hunter2", "MODE=a"} <= set(variables)
        alice.delete(f"/v1/sandboxes/{copy}")
        assert secrets_of(copy) == ({}, "")
    alice.delete("/v1/templates/with-secret/latest")


def kept_of(sandbox_id):
    """What starts its agent server, None if nothing is kept of one; and its start command."""
    with connection():
        row = AgentServer.get_or_none(AgentServer.sandbox_id == sandbox_id)
        return row and row.source, Sandbox.get_by_id(sandbox_id).start_command


def launched(alice, made, path, **body):
    answer = alice.post(f"/v1/sandboxes{path}", json=body)
    assert answer.status_code == 201, answer.text
    made.append(answer.json()["id"])
    return made[-1]


def test_what_starts_a_sandbox_goes_with_it(alice, rows, made):
    source = alice.create(agentServerSource=SOURCE)["id"]
    made.append(source)
    fork = launched(alice, made, f"/{source}/fork", startCommand="serve 3000", readinessPort=3000,
                    ports=[3000])
    alice.wait_for(fork, "running")
    assert kept_of(source) == (SOURCE, None) and kept_of(fork) == (SOURCE, "serve 3000")
    for sandbox in (fork, source):
        alice.delete(f"/v1/sandboxes/{sandbox}")
        assert kept_of(sandbox) == (None, None)


def test_what_forks_of_its_snapshots_need_goes_with_the_last_of_them(alice, rows, made):
    source = launched(alice, made, "", agentServerSource=SOURCE)
    alice.wait_for(source, "running")
    middle = launched(alice, made, f"/{source}/fork", startCommand="serve 3000",
                      readinessPort=3000, ports=[3000])
    alice.wait_for(middle, "running")
    first, last = (alice.post(f"/v1/sandboxes/{middle}/{path}").json()["id"]
                   for path in ("tarball", "snapshot"))
    alice.delete(f"/v1/sandboxes/{middle}")
    assert kept_of(middle) == (SOURCE, "serve 3000")
    assert alice.delete(f"/v1/snapshots/{first}").status_code == 200
    fork = launched(alice, made, "/fork", snapshotId=last)
    alice.wait_for(fork, "running")
    assert kept_of(fork) == (SOURCE, None), "it has its own"
    assert alice.delete(f"/v1/snapshots/{last}").status_code == 200
    becomes(lambda: kept_of(middle), (None, None))
    assert kept_of(source) == (SOURCE, None), "this one runs"


def test_a_source_deleted_before_its_fork_runs_keeps_nothing_once_it_does(alice, rows, made):
    source = alice.create(agentServerSource=SOURCE)["id"]
    made.append(source)
    fork = launched(alice, made, f"/{source}/fork")
    alice.delete(f"/v1/sandboxes/{source}")
    with connection():
        becomes(lambda: Sandbox.get_by_id(fork).status != "provisioning")
    becomes(lambda: kept_of(source), (None, None))
