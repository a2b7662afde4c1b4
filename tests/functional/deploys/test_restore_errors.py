"""A version that cannot go on with the database of the one before fails, and changes nothing: what
is stored makes no database any more, its app does not come up while requests are held, or what it
has stored itself restores to nothing. By a real worker, store and restore, and guests that say yes
to all."""
import pytest

from models.states import RunStep
from nodeworker.deploys import database_restore
from objects.store import ObjectStore
from tests.fakes.hostile_guest import ENDED, RESULT, frame
from tests.functional.deploys.conftest import DONE, FENCE_S, FIRST, MANIFEST, begin_second
from tests.stack.database import query
from tests.stack.waiting import becomes

ROW = "SELECT to_jsonb(app) FROM deploys app WHERE app_id = %s"
# Not what begins with the first transaction, and not a file of Litestream's.
SECOND = FIRST.replace("1", "2")


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
    begun = begin_second(sim_stack, before, step, hostile)
    ended = ("SELECT state, error, starts_with(operator_error, 'ReplicaBroken: ') FROM deploy_runs"
             " WHERE id = %s AND finished_at IS NOT NULL")
    failed = ("failed", database_restore.BROKEN, True)
    becomes(lambda: query(sim_stack, ended, begun), [failed], 120)
    assert guest.asked > 0
    has_changed_nothing(sim_stack, before, row, hostile)


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
    begun = begin_second(sim_stack, before, RunStep.MOVE, runtime,
                         manifest={**MANIFEST, "moves": 4})
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


def test_a_database_that_the_version_before_has_lost_is_not_dropped(sim_stack, before, good, guest,
                                                                    next_version, worker):
    """As when its machine has died and the file is empty; the store has it."""
    ObjectStore(sim_stack.settings).put_stream(f"{before.prefix}db/{FIRST}", [good])
    row, runtime = query(sim_stack, ROW, before.app_id), next_version(listens=True)
    for each in (before, guest):
        each.replies[b"localhost/sync"] = frame(RESULT, {**ENDED, "exitCode": 9})
    begun = begin_second(sim_stack, before, RunStep.MOVE, runtime)
    worker(begun)
    assert query(sim_stack, "SELECT state, operator_error FROM deploy_runs WHERE id = %s",
                 begun) == [("queued", "NotReplicated: the version before has lost the database"
                                       " that is stored of it")]
    assert query(sim_stack, ROW, before.app_id) == row


def test_no_request_is_held_where_the_disk_has_no_room_for_the_database(
        sim_stack, before, guest, next_version, worker):
    begun = begin_second(sim_stack, before, RunStep.MOVE, next_version(listens=True))
    worker(begun, disk_floor_mb=1 << 40)
    assert query(sim_stack, "SELECT state, attempts, operator_error, manifest->'moves'"
                            " FROM deploy_runs WHERE id = %s", begun) == [
        ("queued", 0, "The disk of this node has no room for the database at present.", None)]
    assert before.asked == guest.asked == 0
