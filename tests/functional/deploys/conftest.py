"""Apps in rows of their own: alice and mallory, a node, a snapshot of alice's, and a test as the
worker. A served app of a running stack, and a database as it is stored."""
import contextlib
import dataclasses
import sqlite3
import subprocess
import time
from datetime import timedelta

import pytest

from config.settings import Settings
from guest.client.agent_client import AgentClient
from models.database import connect, connection, database, now
from models.deploys import Deploy, DeployPrefix, DeployRun
from models.ids import new_id
from models.snapshots import Snapshot
from models.states import (
    OPEN_RUN_STATES,
    DeployStatus,
    Plan,
    RunState,
    RunStep,
    SandboxStatus,
    SnapshotState,
)
from models.users import User
from nodeworker.deploys import run_steps
from nodeworker.deploys.replica_files import PROGRAM
from nodeworker.wiring import NodeDeps
from services.deploys import builders, drained_sandboxes, runs
from services.deploys import version_prefixes as prefix_rows
from services.deploys.apps.process_facts import APP_PORT
from services.deploys.begin_run import DeployRequest, reserve
from services.deploys.builder_removal import ACCOUNT
from services.deploys.served import replica_keys, runtimes
from services.hosts.nodes import NodeFacts, heartbeat
from services.protocols import Deps
from services.sandboxes.idle import touch_values
from tasks.wiring import no_guest
from tests.fakes.hostile_guest import ENDED, RESULT, STDOUT, frame, point_at, serving
from tests.fakes.outside import ListQueue
from tests.rows import operations, served_apps
from tests.stack.previews import Served
from tests.stack.waiting import eventually, until
from tests.tls.clients import client

HOST = "kiosk.apps.localhost"
# Of a replica, below its prefix.
FIRST = "0000/0000000000000001-0000000000000001.ltx"
# What a guest says.
SYNCED = frame(STDOUT, b'{"txid": 1, "replicated_txid": 1}') + frame(RESULT, ENDED)
DONE = frame(RESULT, {**ENDED, "sizeBytes": 0})
SERVED = {"output": None, "start": "serve", "database": None, "functions": 0}
DATABASE = SERVED | {"database": "app.db"}
MANIFEST = {"output": None, "start": "serve", "database": "app.db", "functions": 0}
FENCE_S = 6
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
    settings = Settings(operation_wait_s=0.3, guest_secret="k" * 32,
                        variables_secret="of this stack")
    return Deps(settings, ListQueue(), no_guest)


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
            run = DeployRun.get((DeployRun.slug == slug) & DeployRun.state.in_(OPEN_RUN_STATES))
            return runs.claim(run.id, run.node_id, worker, lease_s)
    return claim


@pytest.fixture
def bring_up(deps, ask, take):
    """Begins a deploy whose runtime is up; returns its claim."""
    def up(manifest=SERVED, **fields):
        ask(**fields)
        claimed = take()
        sandbox = builders.start(deps, claimed)
        operations.succeed(sandbox, SandboxStatus.RUNNING, **touch_values(600))
        with connection():
            built = runs.advance(claimed, RunStep.BUILD)
        up = runtimes.adopt_builder(built, manifest)
        if manifest["database"]:
            return runtimes.begin_prefix(deps.settings, up)[0]
        with connection():
            return runs.advance(up, RunStep.READY, stored_epoch=up.epoch)
    return up


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


def post_count(http, name):
    """How often the web server that `http` reaches was asked for what has that id."""
    return http.get(f"/count?id={name}").text


@pytest.fixture
def shop(sim_stack, versions):
    """A client of the app `shop`, which the first of them serves."""
    served_apps.go_live("kiosk", versions[0].sandbox_id)
    with client(sim_stack, HOST) as http:
        until(lambda: http.get("/nonce").status_code == 200)
        yield http


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """The one file that a small database is replicated to: the first transaction."""
    return replicate_once(tmp_path_factory.mktemp("good") / "app.db",
                          "CREATE TABLE t AS SELECT 7 AS x")


def replicate_once(path, statement):
    """The first file that a new database is replicated to, which has the outcome of a statement."""
    with contextlib.closing(sqlite3.connect(path)) as rows:
        rows.execute("PRAGMA journal_mode = wal")
        rows.execute(statement)
    replica = path.with_name("replica")
    subprocess.run([str(PROGRAM), "replicate", "-once", str(path), f"file://{replica}"], env={},
                   check=True, capture_output=True)
    return (replica / "ltx" / FIRST.replace("0000/", "0/")).read_bytes()


@pytest.fixture
def before(sim_stack, stack_rows, alice):
    """The guest of an app's version 1, which says that all it has written is stored; `app_id`,
    `sandbox`, `prefix`."""
    app_id, made = new_id("app_"), alice.create(ports=[APP_PORT])["id"]
    with connection(), database.atomic():
        Deploy.create(slug=app_id, app_id=app_id, owner_id="svc-deploys", next_version=3,
                      status=DeployStatus.LIVE, live_version=1, live_epoch=1, live_static=False,
                      live_sandbox_id=made)
        _run(sim_stack, app_id, 1, state=RunState.SUCCEEDED)
        prefix = prefix_rows.keep(app_id, 1, 1)
    replica_keys.issue(sim_stack.settings, made, prefix_rows.database_prefix(prefix))
    with serving() as guest:
        point_at(sim_stack, made, guest.server_address[1])
        guest.reply, guest.silent_s = SYNCED, 1.0
        guest.app_id, guest.sandbox, guest.prefix = app_id, made, prefix
        yield guest
    with connection(), database.atomic():
        replica_keys.revoke(made)
        Deploy.delete().where(Deploy.slug == app_id).execute()
        prefix_rows.collect(DeployPrefix.prefix == prefix)
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture
def worker(sim_stack):
    """Works on a run as the stack's worker does, which is away; its fences are short, unless other
    settings are given."""
    def work(run_id, **changed):
        settings = dataclasses.replace(sim_stack.settings,
                                       **{"deploy_fence_s": FENCE_S, **changed})
        run_steps.run_announced(NodeDeps(settings, None, ListQueue(), lambda sandbox: AgentClient(
            settings.node_address, sandbox.agent_port, sandbox.agent_token)), run_id)

    sim_stack.stop("node-deploy")
    yield work
    sim_stack.start("node-deploy")


def _run(stack, app_id, version, **columns):
    return DeployRun.create(
        slug=app_id, app_id=app_id, owner_id="svc-deploys", version=version, run_id="run",
        deploy_intent_id="intent", snapshot_id="none", deadline_at=now() + timedelta(seconds=600),
        **{"manifest": MANIFEST, "node_id": stack.settings.node_id, **columns})


def begin_second(stack, before, step, runtime, **columns):
    """A run of version 2, at this step, whose app is in that sandbox."""
    with connection():
        return _run(stack, before.app_id, 2, step=step, epoch=1, announce_at=now(),
                    runtime_sandbox_id=runtime, **columns).id


@pytest.fixture
def next_version(sim_stack, alice, guest):
    """Makes a sandbox whose agent is `guest`; something listens at its port, or nothing does."""
    server = Served()

    def make(*, listens):
        made = server.preview(sim_stack, alice).sandbox_id if listens else \
            alice.create(ports=[APP_PORT])["id"]
        guest.reply, guest.silent_s, guest.replies[b"localhost/sync"] = DONE, 1.0, SYNCED
        point_at(sim_stack, made, guest.server_address[1])
        return made
    yield make
    server.close()


def drained_with_its_answer(sandbox, answer):
    """Nothing says that the sandbox is drained while it owes this answer."""
    while not answer.done():
        # one that comes between the two looks was still owed at the first
        assert not drained_sandboxes.is_drained(sandbox) or eventually(answer.done, 0.5)
        time.sleep(0.05)
    until(lambda: drained_sandboxes.is_drained(sandbox))


def app(slug="hello"):
    """The row of an app as a dict; None if there is none."""
    with connection():
        return Deploy.select().where(Deploy.slug == slug).dicts().first()


def prefixes():
    """Prefix -> whether it is to be removed."""
    with connection():
        return {row.prefix: row.due_at is not None for row in DeployPrefix.select()}
