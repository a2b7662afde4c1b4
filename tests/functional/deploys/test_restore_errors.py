"""A version that cannot go on with the database of the one before fails, and changes nothing: what
is stored makes no database any more, its app does not come up while requests are held, or what it
has stored itself restores to nothing. By a real worker, store and restore, and guests that say yes
to all."""
import dataclasses
from datetime import timedelta

import pytest

from guest.client.agent_client import AgentClient
from models.database import connection, database, now
from models.deploys import Deploy, DeployPrefix, DeployRun
from models.ids import new_id
from models.states import DeployStatus, RunState, RunStep
from nodeworker.deploys import databases, runner
from nodeworker.wiring import NodeDeps
from objects.store import ObjectStore
from services.deploys import prefixes
from services.deploys.served import replica_keys
from services.deploys.served.runtimes import APP_PORT
from tests.fakes.hostile_guest import ENDED, RESULT, STDOUT, frame, point_at, serving
from tests.fakes.outside import ListQueue
from tests.functional.deploys.conftest import FIRST
from tests.stack.database import query
from tests.stack.previews import Served
from tests.stack.waiting import becomes

SYNCED = frame(STDOUT, b'{"txid": 1, "replicated_txid": 1}') + frame(RESULT, ENDED)
DONE = frame(RESULT, {**ENDED, "sizeBytes": 0})
MANIFEST = {"output": None, "start": "serve", "database": "app.db", "functions": 0}
ROW = "SELECT to_jsonb(app) FROM deploys app WHERE app_id = %s"
# Not what begins with the first transaction, and not a file of Litestream's.
SECOND = FIRST.replace("1", "2")
FENCE_S = 6


@pytest.fixture
def before(sim_stack, stack_rows, alice):
    """The guest of an app's version 1, which says that all it has written is stored; `app_id`,
    `sandbox`, `prefix`."""
    app_id, made = new_id("app_"), alice.create(ports=[APP_PORT])["id"]
    with connection(), database.atomic():
        Deploy.create(slug=app_id, app_id=app_id, owner_id="svc-deploys", next_version=3,
                      status=DeployStatus.LIVE, live_version=1, live_epoch=1, live_static=False,
                      live_sandbox_id=made)
        run(sim_stack, app_id, 1, state=RunState.SUCCEEDED)
        prefix = prefixes.keep(app_id, 1, 1)
    replica_keys.issue(sim_stack.settings, made, prefixes.database_prefix(prefix))
    with serving() as guest:
        point_at(sim_stack, made, guest.server_address[1])
        guest.reply, guest.silent_s = SYNCED, 1.0
        guest.app_id, guest.sandbox, guest.prefix = app_id, made, prefix
        yield guest
    with connection(), database.atomic():
        replica_keys.revoke(made)
        Deploy.delete().where(Deploy.slug == app_id).execute()
        prefixes.collect(DeployPrefix.prefix == prefix)
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture
def worker(sim_stack):
    """Works on a run as the stack's worker does, which is away; its fences are short."""
    settings = dataclasses.replace(sim_stack.settings, deploy_fence_s=FENCE_S)
    deps = NodeDeps(settings, None, ListQueue(), lambda sandbox: AgentClient(
        settings.node_address, sandbox.agent_port, sandbox.agent_token))
    sim_stack.stop("node-deploy")
    yield lambda run_id: runner.run_announced(deps, run_id)
    sim_stack.start("node-deploy")


def run(stack, app_id, version, **columns):
    return DeployRun.create(
        slug=app_id, app_id=app_id, owner_id="svc-deploys", version=version, run_id="run",
        deploy_intent_id="intent", snapshot_id="none", node_id=stack.settings.node_id,
        deadline_at=now() + timedelta(seconds=600), **{"manifest": MANIFEST, **columns})


def begin(stack, before, step, runtime, **columns):
    """A run of version 2, at this step, whose app is in that sandbox."""
    with connection():
        return run(stack, before.app_id, 2, step=step, epoch=1, announce_at=now(),
                   runtime_sandbox_id=runtime, **columns).id


def has_changed_nothing(stack, before, row, runtime):
    """The version before is served, its files and its key are kept, those of the next are gone."""
    assert query(stack, ROW, before.app_id) == row
    assert query(stack, "SELECT type FROM events WHERE subject = %s", before.app_id) == [
        ("deploy.failed",)]
    becomes(lambda: query(stack, "SELECT prefix, due_at FROM deploy_prefixes WHERE app_id = %s",
                          before.app_id), [(before.prefix, None)])
    becomes(lambda: query(stack, "SELECT sandbox_id FROM relay_keys WHERE sandbox_id IN (%s, %s)",
                          before.sandbox, runtime), [(before.sandbox,)])
    assert not list((stack.settings.node_dir / ".databases").iterdir())
    up = "SELECT id, status FROM sandboxes WHERE id IN (%s, %s) AND status != 'stopped'"
    becomes(lambda: query(stack, up, before.sandbox, runtime), [(before.sandbox, "running")])


@pytest.mark.parametrize("step, stored", [
    (RunStep.START, FIRST), (RunStep.START, SECOND), (RunStep.MOVE, "elsewhere")
], ids=["damaged", "missing", "all gone"])
@pytest.mark.slow
def test_the_version_before_goes_on(sim_stack, before, hostile, guest, step, stored):
    ObjectStore(sim_stack.settings).put_stream(f"{before.prefix}db/{stored}", [bytes(5000)])
    guest.reply, guest.silent_s = DONE, 1.0
    row = query(sim_stack, ROW, before.app_id)
    begun = begin(sim_stack, before, step, hostile)
    ended = ("SELECT state, error, starts_with(operator_error, 'ReplicaBroken: ') FROM deploy_runs"
             " WHERE id = %s AND finished_at IS NOT NULL")
    becomes(lambda: query(sim_stack, ended, begun), [("failed", databases.BROKEN, True)], 120)
    assert guest.asked > 0
    has_changed_nothing(sim_stack, before, row, hostile)


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


@pytest.mark.parametrize("listens, why", [
    (False, "The fence was over before the new version was up."),
    (True, "NotReplicated: what the new version has stored does not restore"),
], ids=["never listens", "stores nothing"])
@pytest.mark.slow
def test_it_goes_on_after_the_last_fence_too(sim_stack, before, good, guest, next_version, worker,
                                             listens, why):
    """The fifth attempt, although what is stored of it makes a database."""
    store = ObjectStore(sim_stack.settings)
    store.put_stream(f"{before.prefix}db/{FIRST}", [good])
    row, runtime = query(sim_stack, ROW, before.app_id), next_version(listens=listens)
    begun = begin(sim_stack, before, RunStep.MOVE, runtime, manifest={**MANIFEST, "moves": 4})
    worker(begun)
    assert any(b"start --no-block svc-app" in piece for piece in guest.heard), "inside the fence"
    assert query(sim_stack, "SELECT state, operator_error FROM deploy_runs WHERE id = %s",
                 begun) == [("queued", why)]
    assert query(sim_stack, ROW, before.app_id) == row, "nothing is held any more"
    assert query(sim_stack, "SELECT 1 FROM drains WHERE sandbox_id = %s", before.sandbox) == []
    assert b"echo 0 >" in before.heard[-1], "its app is thawed"
    worker(begun)
    assert query(sim_stack, "SELECT state, error FROM deploy_runs WHERE id = %s", begun) == [
        ("failed", "The database could not be moved to the new version within"
                   f" {FENCE_S} s, in 5 attempts.")]
    has_changed_nothing(sim_stack, before, row, runtime)
    assert [each.key for each in store.list_objects(before.prefix)] == [
        f"{before.prefix}db/{FIRST}"]
