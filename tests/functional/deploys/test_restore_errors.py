"""A version whose predecessor's stored database makes no database any more fails, and changes
nothing: by a real worker, store and restore, and a guest that says yes to all."""
from datetime import timedelta

import pytest

from models.database import connection, database, now
from models.deploys import Deploy, DeployPrefix, DeployRun
from models.ids import new_id
from models.states import DeployStatus, RunState, RunStep
from nodeworker.deploys import databases
from objects.store import ObjectStore
from services.deploys import prefixes
from services.deploys.served import replica_keys
from services.deploys.served.runtimes import APP_PORT
from tests.fakes.hostile_guest import ENDED, RESULT, STDOUT, frame, point_at, serving
from tests.stack.database import query
from tests.stack.waiting import becomes

SYNCED = b'{"txid": 5, "replicated_txid": 5}'
MANIFEST = {"output": None, "start": "serve", "database": "app.db", "functions": 0}
ROW = "SELECT to_jsonb(app) FROM deploys app WHERE app_id = %s"
# Not what begins with the first transaction, and not a file of Litestream's.
SECOND, FIRST = "0000/{0}2-{0}2.ltx".format("0" * 15), "0000/{0}1-{0}1.ltx".format("0" * 15)


@pytest.fixture
def live(sim_stack, stack_rows, alice):
    """Id of an app, and of the sandbox that serves its version 1, whose guest says that all it has
    written is stored."""
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
        guest.reply, guest.silent_s = frame(STDOUT, SYNCED) + frame(RESULT, ENDED), 1.0
        yield app_id, made
    with connection(), database.atomic():
        replica_keys.revoke(made)
        Deploy.delete().where(Deploy.slug == app_id).execute()
        prefixes.collect(DeployPrefix.prefix == prefix)
    alice.delete(f"/v1/sandboxes/{made}")


def run(stack, app_id, version, **columns):
    return DeployRun.create(
        slug=app_id, app_id=app_id, owner_id="svc-deploys", version=version, run_id="run",
        deploy_intent_id="intent", snapshot_id="none", node_id=stack.settings.node_id,
        manifest=MANIFEST, deadline_at=now() + timedelta(seconds=600), **columns)


@pytest.mark.parametrize("step, stored", [
    (RunStep.START, FIRST), (RunStep.START, SECOND), (RunStep.MOVE, "elsewhere")
], ids=["damaged", "missing", "all gone"])
def test_the_version_before_goes_on(sim_stack, live, hostile, guest, step, stored):
    app_id, before_it = live
    prefix = prefixes.prefix_of(app_id, 1, 1)
    ObjectStore(sim_stack.settings).put_stream(f"{prefix}db/{stored}", [bytes(5000)])
    guest.reply, guest.silent_s = frame(RESULT, {**ENDED, "sizeBytes": 0}), 1.0
    before = query(sim_stack, ROW, app_id)
    with connection():
        begun = run(sim_stack, app_id, 2, step=step, epoch=1, announce_at=now(),
                    runtime_sandbox_id=hostile)
    ended = ("SELECT state, error, starts_with(operator_error, 'ReplicaBroken: ') FROM deploy_runs"
             " WHERE id = %s AND finished_at IS NOT NULL")
    becomes(lambda: query(sim_stack, ended, begun.id), [("failed", databases.BROKEN, True)], 120)
    assert query(sim_stack, ROW, app_id) == before and guest.asked > 0
    assert query(sim_stack, "SELECT type FROM events WHERE subject = %s", app_id) == [
        ("deploy.failed",)]
    becomes(lambda: query(sim_stack, "SELECT prefix, due_at FROM deploy_prefixes WHERE app_id = %s",
                          app_id), [(prefix, None)])
    assert query(sim_stack, "SELECT sandbox_id FROM relay_keys WHERE sandbox_id IN (%s, %s)",
                 before_it, hostile) == [(before_it,)]
    assert not list((sim_stack.settings.node_dir / ".databases").iterdir())
    up = "SELECT id, status FROM sandboxes WHERE id IN (%s, %s) AND status != 'stopped'"
    becomes(lambda: query(sim_stack, up, before_it, hostile), [(before_it, "running")])
