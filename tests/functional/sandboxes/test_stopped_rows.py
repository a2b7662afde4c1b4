"""A stopped sandbox keeps no secret: its row has neither variables nor token, and what was made of
it has what it needs of its own."""
import pytest

from models.database import connect, connection, database
from models.sandboxes import Sandbox


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
