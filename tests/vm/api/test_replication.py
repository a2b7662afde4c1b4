"""A real guest replicates its database: all rows are in the store when it says so, and before it
sleeps; it reaches nothing of the store but that."""
import contextlib
import json
import sqlite3

import pytest

from guest.client.agent_client import AgentClient
from models.database import connect, connection, database
from models.sandboxes import Sandbox
from nodeworker.deploys import app_process, replication
from objects.store import ObjectStore
from services.deploys.served import replica_keys
from tests.clients.replicas import signed
from tests.stack.waiting import until

pytestmark = pytest.mark.vm
PATH, PREFIX, OTHERS = "/home/user/app.db", "apps/one/v1-1/db/", "apps/two/v1-1/db/"
DROPPED, AFTER_IT = "apps/three/v1-1/db/", "apps/three/v1-2/db/"
INSERT = """
import sqlite3, sys
rows = sqlite3.connect("/home/user/app.db")
rows.execute("CREATE TABLE IF NOT EXISTS t (x)")
for number in range(int(sys.argv[1])):
    rows.execute("INSERT INTO t VALUES (?)", (number,))
    rows.commit()
"""


@pytest.fixture
def machine(vm_stack, vm_alice):
    connect(vm_stack.settings.database_url, pool_size=2)
    made = vm_alice.create()["id"]
    yield made
    replica_keys.revoke(made)  # or its last rows are waited for, though its replication has ended
    vm_alice.delete(f"/v1/sandboxes/{made}")
    database.close_all()


def insert(persona, machine, count):
    done = persona.exec(machine, "python3", "-c", INSERT, str(count))
    assert done["exitCode"] == 0, done


def rows(path):
    with contextlib.closing(sqlite3.connect(path)) as opened:
        return opened.execute("SELECT count(*) FROM t").fetchone()[0]


def curl(persona, machine, key, method, path, body=b""):
    """Status of a request that the guest sends."""
    words = ["-X", method, "--data-binary", body.decode()] if body else ["-X", method]
    for name, value in signed(key, method, path, body).items():
        words += ["-H", f"{name}: {value}"]
    done = persona.exec(machine, "curl", "-s", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}",
                        "--path-as-is", *words, f"http://169.254.42.1:8790{path}")
    return int(done["stdout"])


def agent_of(stack, machine):
    with connection():
        row = Sandbox.get_by_id(machine)
    return AgentClient(stack.settings.node_address, row.agent_port, row.agent_token)


def test_what_replicates_a_database_that_is_dropped_has_ended_before(vm_stack, vm_alice, machine):
    """It would make an empty one of what it opens too late."""
    agent, settings = agent_of(vm_stack, machine), vm_stack.settings
    replication.configure(agent, PATH, replica_keys.issue(settings, machine, DROPPED))
    insert(vm_alice, machine, 1)
    app_process.drop_database(agent, PATH)
    unit = vm_alice.exec(machine, "systemctl", "is-active", replication.UNIT)["stdout"].strip()
    assert unit in ("inactive", "failed")
    found = vm_alice.exec(machine, "pgrep", "-x", "litestream.*")
    assert (found["exitCode"], found["stdout"]) == (1, "")
    assert vm_alice.exec(machine, "bash", "-c", "ls -A /home/user | grep app.db")["exitCode"] == 1
    replication.configure(agent, PATH, replica_keys.issue(settings, machine, AFTER_IT))
    insert(vm_alice, machine, 1)
    until(lambda: replicates(agent))


def replicates(agent):
    with contextlib.suppress(replication.NotReplicated):
        return replication.sync(agent, PATH) is not None
    return False


def test_a_guest_replicates_and_reaches_nothing_else(vm_stack, vm_alice, machine, tmp_path):
    settings, target = vm_stack.settings, tmp_path / "app.db"
    agent = agent_of(vm_stack, machine)
    key = replica_keys.issue(settings, machine, PREFIX)
    for _ in range(2):
        replication.configure(agent, PATH, key)
    assert replication.sync(agent, PATH) is None, "there is no database yet"
    assert replication.restore(settings, PREFIX, target) is False
    insert(vm_alice, machine, 100)
    until(lambda: replicates(agent))  # what replicates may just be starting
    first = replication.sync(agent, PATH)
    assert replication.restore(settings, PREFIX, target, first) and rows(target) == 100

    insert(vm_alice, machine, 50)
    vm_alice.post(f"/v1/sandboxes/{machine}/hibernate").raise_for_status()
    assert replication.restore(settings, PREFIX, target) and rows(target) == 150, "synced first"
    vm_alice.post(f"/v1/sandboxes/{machine}/wake").raise_for_status()
    insert(vm_alice, machine, 7)
    replication.end(agent)
    assert replication.restore(settings, PREFIX, target) and rows(target) == 157
    assert replication.check(settings, PREFIX)

    store = ObjectStore(settings)
    store.put_stream(f"{OTHERS}there", [b"two's"])
    bucket = f"/{key.bucket}"
    assert curl(vm_alice, machine, key, "PUT", f"{bucket}/{PREFIX}own", b"mine") == 200
    for method, path, body in (
            ("GET", f"{bucket}/{OTHERS}there", b""), ("PUT", f"{bucket}/{OTHERS}there", b"bad"),
            ("DELETE", f"{bucket}/{OTHERS}there", b""),
            ("GET", f"{bucket}/{PREFIX}../../../two/v1-1/db/there", b""),
            ("GET", f"{bucket}?list-type=2&prefix=apps/", b""),
            ("GET", f"/{settings.s3_bucket}/{OTHERS}there", b"")):
        assert curl(vm_alice, machine, key, method, path, body) in (401, 403), (method, path)
    assert b"".join(store.get_stream(f"{OTHERS}there")) == b"two's"
    port = settings.s3_url.rpartition(":")[2]
    assert vm_alice.exec(machine, "curl", "-s", "-m", "3", f"http://169.254.42.1:{port}/"
                         )["exitCode"] != 0, "the store itself"
    found = vm_alice.exec(machine, "cat", "/etc/svc-replicate.yml")["stdout"]
    assert json.loads(found)["dbs"][0]["path"] == PATH
    assert settings.s3_secret_key not in found
