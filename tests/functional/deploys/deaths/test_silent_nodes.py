"""The node of the version before does not report: its guest may be at work all the same, and what
it has acknowledged is not lost. By a real worker, store and restore; the node's `ctl` is stopped,
and a worker of another node, or of this one, goes on with the run."""
import base64
import contextlib
import sqlite3
import subprocess

import pytest

from models.states import RunStep
from nodeworker.deploys.replica_files import PROGRAM
from objects.store import ObjectStore
from tests.fakes.hostile_guest import ENDED, RESULT, STDOUT, frame
from tests.functional.deploys.conftest import FIRST, begin_second
from tests.stack.database import query
from tests.stack.previews import Served
from tests.stack.waiting import until

SECOND = FIRST.replace("1", "2")
SYNCED = frame(STDOUT, b'{"txid": 2, "replicated_txid": 2}') + frame(RESULT, ENDED)
PONG = frame(RESULT, {"agentVersion": "1", "bootId": "b", "adopted": None})
FILES = "/v1/sandboxes/{}/files?path=/home/user/app.db"


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """What a database is replicated to: a first row, and a second one."""
    directory, found = tmp_path_factory.mktemp("pieces"), {}
    with contextlib.closing(sqlite3.connect(directory / "app.db", isolation_level=None)) as rows:
        rows.execute("PRAGMA journal_mode = wal")
        for statement in ("CREATE TABLE rows AS SELECT 'stored' AS name",
                          "INSERT INTO rows VALUES ('acknowledged')"):
            rows.execute(statement)
            subprocess.run([str(PROGRAM), "replicate", "-once", str(directory / "app.db"),
                            f"file://{directory}/replica"], env={}, check=True,
                           capture_output=True)
    for name in (FIRST, SECOND):
        path = directory / "replica/ltx" / name.replace("0000/", "0/")
        found[name] = path.read_bytes()
    return found


@pytest.fixture
def lagging(sim_stack, before, pieces):
    """The guest of the version before: its second row is in the store once it is asked for it."""
    store = ObjectStore(sim_stack.settings)
    store.put_stream(f"{before.prefix}db/{FIRST}", [pieces[FIRST]])

    def reply_to(piece):
        if b"localhost/sync" in piece:
            store.put_stream(f"{before.prefix}db/{SECOND}", [pieces[SECOND]])
            return SYNCED
        return PONG if b'"op":"ping"' in piece else frame(RESULT, ENDED)

    before.reply_to, before.silent_s = reply_to, 0.1
    return before


@pytest.fixture
def silent(sim_stack):
    """The node has not reported for long."""
    sim_stack.stop("node-ctl")
    query(sim_stack, "UPDATE nodes SET heartbeat_at = 'epoch'")
    yield
    sim_stack.start("node-ctl")
    until(lambda: query(sim_stack, "SELECT 1 FROM nodes WHERE heartbeat_at > 'epoch'"))


@pytest.fixture
def next_app(sim_stack, alice):
    """Id of a simulated sandbox whose app listens as soon as it is started."""
    server = Served()
    made = server.preview(sim_stack, alice).sandbox_id
    alice.write(made, {"/opt/svc-app/run": f"bash -c 'serve 3000 0 {server.port}'"})
    yield made
    server.close()


def rows_of(alice, sandbox_id, directory):
    """What the database of a sandbox holds."""
    answer = alice.get(FILES.format(sandbox_id)).raise_for_status()
    path = directory / "app.db"
    path.write_bytes(base64.b64decode(answer.json()["content"]))
    with contextlib.closing(sqlite3.connect(path)) as rows:
        return [name for name, in rows.execute("SELECT name FROM rows")]


def move(stack, before, runtime, worker, node_id):
    """A worker of that node moves the database; the run's state, and what operators are told."""
    begun = begin_second(stack, before, RunStep.MOVE, runtime, node_id=node_id)
    worker(begun, node_id=node_id, deploy_fence_s=30)
    return query(stack, "SELECT state, operator_error FROM deploy_runs WHERE id = %s", begun)[0]


@pytest.mark.parametrize("node_id", ["elsewhere", None], ids=["another's worker", "its own"])
def test_a_guest_that_answers_is_frozen_and_stores_its_last_rows(
        sim_stack, alice, lagging, next_app, silent, worker, node_id, tmp_path):
    node_id = node_id or sim_stack.settings.node_id
    assert move(sim_stack, lagging, next_app, worker, node_id) == ("succeeded", None)
    assert any(b"echo 1 >" in piece for piece in lagging.heard), "it is frozen"
    assert rows_of(alice, next_app, tmp_path) == ["stored", "acknowledged"]


def test_of_one_that_does_not_answer_counts_what_is_stored(
        sim_stack, alice, lagging, next_app, silent, worker, tmp_path):
    query(sim_stack, "UPDATE sandboxes SET agent_port = 1 WHERE id = %s", lagging.sandbox)
    assert move(sim_stack, lagging, next_app, worker, "elsewhere") == ("succeeded", None)
    assert rows_of(alice, next_app, tmp_path) == ["stored"]


def test_a_guest_whose_node_lets_nobody_in_is_named_and_no_request_is_held(
        sim_stack, lagging, next_app, worker):
    query(sim_stack, "UPDATE sandboxes SET agent_port = 1 WHERE id = %s", lagging.sandbox)
    state, told = move(sim_stack, lagging, next_app, worker, "elsewhere")
    assert state == "queued"
    assert f"SVC_AGENT_SOURCES of node {sim_stack.settings.node_id} must have" in told
    manifest, = query(sim_stack, "SELECT manifest FROM deploy_runs WHERE version = 2"
                                 " AND app_id = %s", lagging.app_id)[0]
    assert "moves" not in manifest
