"""A machine that dies boots from its disk: what a deploy and the app have written is there before
the app is started on its database, and before it goes live. By a real worker, and a guest that says
when it is asked to flush."""
import pytest

from models.states import RunStep
from objects.store import ObjectStore
from tests.fakes.hostile_guest import FAILURE, frame
from tests.functional.deploys.conftest import DONE, FIRST, MANIFEST, begin_second
from tests.stack.database import query

FLUSH, CANNOT = b'"op":"sync"', frame(FAILURE, {"code": "failed", "message": "no disk"})
WRITTEN, STARTED = b'app.db","mode"', b"start --no-block svc-app"
ROW = "SELECT to_jsonb(app) FROM deploys app WHERE app_id = %s"


def order(guest, *calls):
    """Which of these calls the guest has heard, one after the other."""
    return [call for piece in guest.heard for call in calls if call in piece]


def state(stack, run_id):
    return query(stack, "SELECT state, operator_error FROM deploy_runs WHERE id = %s", run_id)[0]


@pytest.mark.parametrize("database", [None, "app.db"])
def test_nothing_goes_live_that_is_not_on_its_disk(sim_stack, before, guest, next_version, worker,
                                                   database):
    """The version before has no database, so none is moved."""
    query(sim_stack, "UPDATE deploy_runs SET manifest = manifest || '{\"database\": null}'"
                     " WHERE app_id = %s", before.app_id)
    runtime = next_version(listens=True)
    guest.replies[FLUSH] = CANNOT
    row = query(sim_stack, ROW, before.app_id)
    begun = begin_second(sim_stack, before, RunStep.READY, runtime, stored_epoch=1,
                         manifest={**MANIFEST, "database": database})
    worker(begun)
    assert state(sim_stack, begun) == ("queued", "AgentRefused: failed: no disk")
    assert query(sim_stack, ROW, before.app_id) == row
    guest.replies[FLUSH] = DONE
    worker(begun)
    assert state(sim_stack, begun) == ("succeeded", None)
    asked = [b"localhost/sync", FLUSH] if database else [FLUSH]
    assert order(guest, FLUSH, b"localhost/sync") == asked * 2, "what replicates writes, too"


def test_a_database_that_is_moved_is_on_the_disk_before_the_app_opens_it(
        sim_stack, before, good, guest, next_version, worker):
    store = ObjectStore(sim_stack.settings)
    store.put_stream(f"{before.prefix}db/{FIRST}", [good])
    runtime = next_version(listens=True)
    begun = begin_second(sim_stack, before, RunStep.MOVE, runtime)
    store.put_stream(f"apps/{before.app_id}/v2-2/db/{FIRST}", [good])
    worker(begun, deploy_fence_s=30)
    assert state(sim_stack, begun) == ("succeeded", None)
    assert order(guest, FLUSH, WRITTEN, STARTED) == [FLUSH, WRITTEN, FLUSH, STARTED]


def test_a_build_that_cannot_be_flushed_holds_no_request(sim_stack, before, guest, next_version,
                                                         worker):
    guest_of_next = next_version(listens=True)
    guest.replies[FLUSH] = CANNOT
    begun = begin_second(sim_stack, before, RunStep.MOVE, guest_of_next)
    worker(begun)
    assert state(sim_stack, begun) == ("queued", "AgentRefused: failed: no disk")
    assert before.asked == 0 and order(guest, STARTED) == []
    assert query(sim_stack, "SELECT 1 FROM drains WHERE sandbox_id = %s", before.sandbox) == []
