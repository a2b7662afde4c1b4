"""Apps in rows of their own: alice and mallory, a node, a snapshot of alice's, and a test as the
worker. A served app of a running stack, and a database as it is stored."""
import contextlib
import sqlite3
import subprocess

import pytest

from config.settings import Settings
from models.database import connect, connection, database
from models.deploys import Deploy, DeployPrefix, DeployRun
from models.snapshots import Snapshot
from models.states import Plan, SnapshotState
from models.users import User
from nodeworker.deploys.replicas import PROGRAM
from services.deploys import runs
from services.deploys.builder_removal import ACCOUNT
from services.deploys.reserve import DeployRequest, reserve
from services.hosts.nodes import NodeFacts, heartbeat
from services.protocols import Deps
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue
from tests.rows import operations, served_apps
from tests.stack.previews import Served
from tests.stack.waiting import until
from tests.tls.clients import client

HOST = "kiosk.apps.localhost"
SOON_S = 10
# Of a replica, below its prefix.
FIRST = "0000/0000000000000001-0000000000000001.ltx"
NODE = NodeFacts("n1", "127.0.0.1", 64, 65536, 20000, 20099, {})


@pytest.fixture
def deps(fresh_rows):
    """Settings and a queue that keeps its messages, over empty rows."""
    with connection():
        database.execute_sql("TRUNCATE users, nodes, operations, outbox, port_bindings, snapshots,"
                             " sandboxes, deploys, deploy_runs, deploy_prefixes, edges, events,"
                             " staged_versions CASCADE")
        for name in ("alice", "mallory", ACCOUNT):
            User.create(id=name, email=name, password_hash="x", plan=Plan.LEGACY_PRO)
    heartbeat(NODE)
    return Deps(Settings(operation_wait_s=0.3, guest_secret="k" * 32), ListQueue(), no_guest)


@pytest.fixture
def snapshot(deps):
    """Id of a ready snapshot of a sandbox of alice's."""
    sandbox = operations.boot(deps)
    with connection():
        return Snapshot.create(id="snap1", owner_id="alice", node_id="n1", cwd="/home/user",
                               state=SnapshotState.READY, source_sandbox_id=sandbox, vcpus=1,
                               mem_mb=1024).id


@pytest.fixture
def ask(deps, snapshot):
    """Begins a deploy, of alice's unless another is named."""
    def begin(slug="hello", owner="alice", intent=None):
        with connection():
            user = User.get_by_id(owner)
        return reserve(deps, user, DeployRequest(snapshot, slug, "run", intent))
    return begin


@pytest.fixture
def take(deps):
    """Claims the open run of an app as a worker does."""
    def claim(slug="hello", worker="w", lease_s=10.0):
        with connection():
            run = DeployRun.get((DeployRun.slug == slug) & DeployRun.state.in_(runs.OPEN))
            return runs.claim(run.id, run.node_id, worker, lease_s)
    return claim


@pytest.fixture(scope="module")
def stack_rows(sim_stack):
    """This process reads and writes the rows of the stack."""
    connect(sim_stack.settings.database_url, pool_size=5)
    yield
    database.close_all()


@pytest.fixture
def versions(sim_stack, stack_rows, alice):
    """Two running sandboxes, each with a web server that answers for it."""
    servers = Served(), Served()
    made = [server.preview(sim_stack, alice) for server in servers]
    yield made
    served_apps.take_away("kiosk")
    for each, server in zip(made, servers):
        each.delete()
        server.close()


@pytest.fixture
def shop(sim_stack, versions):
    """A client of the app `shop`, which the first of them serves."""
    served_apps.go_live("kiosk", versions[0].sandbox_id)
    with client(sim_stack, HOST) as http:
        until(lambda: http.get("/nonce").status_code == 200, SOON_S)
        yield http


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """The one file that a small database is replicated to: the first transaction."""
    directory = tmp_path_factory.mktemp("good")
    with contextlib.closing(sqlite3.connect(directory / "app.db")) as rows:
        rows.execute("PRAGMA journal_mode = wal")
        rows.execute("CREATE TABLE t AS SELECT 7 AS x")
    subprocess.run([str(PROGRAM), "replicate", "-once", str(directory / "app.db"),
                    f"file://{directory}/replica"], env={}, check=True, capture_output=True)
    return (directory / "replica/ltx" / FIRST.replace("0000/", "0/")).read_bytes()


def app(slug="hello"):
    """The row of an app as a dict; None if there is none."""
    with connection():
        return Deploy.select().where(Deploy.slug == slug).dicts().first()


def prefixes():
    """Prefix -> whether it is to be removed."""
    with connection():
        return {row.prefix: row.due_at is not None for row in DeployPrefix.select()}
