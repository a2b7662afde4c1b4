"""The database of an app that is slow to start moves as well: its start was timed before, and the
fence is as long as that takes. By a real worker, store and restore, and a simulated guest."""
import time

import pytest

from models.states import RunStep
from objects.store import ObjectStore
from services.deploys.apps.process_facts import APP_PORT
from tests.functional.deploys.conftest import FIRST, MANIFEST, begin_second
from tests.stack.database import query
from tests.stack.previews import Served

# Of a fence that is too short for it (s).
STARTS_S, FENCE_S = 4, 2
RUN = """
SELECT state, error, operator_error, (manifest->>'start_s')::float, manifest->'moves'
FROM deploy_runs WHERE id = %s
"""


@pytest.fixture
def slow_app(sim_stack, alice, before, good):
    """Id of a simulated sandbox whose app listens now, and takes its time when it is started."""
    ObjectStore(sim_stack.settings).put_stream(f"{before.prefix}db/{FIRST}", [good])
    server = Served()
    made = server.preview(sim_stack, alice).sandbox_id
    alice.write(made, {"/opt/svc-app/run": f"bash -c 'serve {APP_PORT} {STARTS_S} {server.port}'"})
    yield made
    alice.delete(f"/v1/sandboxes/{made}")
    server.close()


def started(stack, before, runtime, *, start_s, ready_s):
    """A run whose app was started so long ago."""
    return begin_second(stack, before, RunStep.READY, runtime, stored_epoch=1, manifest={
        **MANIFEST, "ready_by": time.time() + ready_s - start_s})


@pytest.mark.slow
def test_it_has_the_time_that_it_took_before(sim_stack, before, slow_app, worker):
    begun = started(sim_stack, before, slow_app, start_s=20, ready_s=30)
    worker(begun, deploy_fence_s=FENCE_S, deploy_ready_s=30)
    state, error, operator_error, start_s, moves = query(sim_stack, RUN, begun)[0]
    assert (state, error, operator_error, moves) == ("succeeded", None, None, 1)
    assert 20 <= start_s <= 30


@pytest.mark.slow
def test_one_whose_worker_looked_late_is_not_taken_for_slow(sim_stack, before, slow_app, worker):
    begun = started(sim_stack, before, slow_app, start_s=55, ready_s=60)
    worker(begun, deploy_fence_s=FENCE_S, deploy_ready_s=60)
    assert query(sim_stack, RUN, begun)[0][:2] == ("succeeded", None)
