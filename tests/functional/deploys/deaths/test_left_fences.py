"""A worker dies, loses its lease or is not told of its flip while requests are held: what was held
is answered before any is held again, and the version before never goes on when it may not. By a
real worker, store, restore and edge, and guests that say what they were asked."""
from concurrent.futures import ThreadPoolExecutor

import peewee
import pytest

from models.states import RunStep
from objects.store import ObjectStore
from services.deploys import drained_sandboxes, publishing
from tests.fakes.hostile_guest import FAILURE, frame, point_at
from tests.functional.deploys.conftest import FIRST, HOST, begin_second
from tests.rows import served_apps
from tests.stack.database import query
from tests.stack.previews import Served
from tests.stack.waiting import until
from tests.tls.clients import client

SLUG = HOST.partition(".")[0]
WRITTEN, FLUSH = b'app.db","mode"', b'"op":"sync"'
CANNOT = frame(FAILURE, {"code": "failed", "message": "no disk"})


def fence_of(stack, before):
    return query(stack, "SELECT fence_until FROM deploys WHERE app_id = %s", before.app_id)[0][0]


def state(stack, run_id):
    return query(stack, "SELECT state, attempts, operator_error, manifest->'moves'"
                        " FROM deploy_runs WHERE id = %s", run_id)[0]


def frozen_or_thawed(guest):
    """What was done to its app, one after the other; what freezes it thaws it later."""
    return ["frozen" if b"echo 1 >" in piece else "thawed" for piece in guest.heard
            if b"echo 0 >" in piece]


@pytest.fixture
def second(sim_stack, worker, before, good, next_version):
    """A run whose app is to go on with the database of the version before; all is as it should
    be, whichever attempt it is. The stack's worker is away before there is such a run."""
    store = ObjectStore(sim_stack.settings)
    store.put_stream(f"{before.prefix}db/{FIRST}", [good])
    begun = begin_second(sim_stack, before, RunStep.MOVE, next_version(listens=True))
    for epoch in (2, 3):
        store.put_stream(f"apps/{before.app_id}/v2-{epoch}/db/{FIRST}", [good])
    return begun


@pytest.fixture
def page(sim_stack, alice, before, second):
    """What the version before answers at HOST."""
    server = Served()
    made = server.preview(sim_stack, alice).sandbox_id
    point_at(sim_stack, made, before.server_address[1])
    query(sim_stack, "UPDATE deploys SET slug = %s, live_sandbox_id = %s WHERE app_id = %s",
          SLUG, made, before.app_id)
    query(sim_stack, "UPDATE deploy_runs SET slug = %s WHERE app_id = %s", SLUG, before.app_id)
    with client(sim_stack, HOST) as http:
        until(lambda: http.get("/nonce").text == server.server.nonce)
    yield server.server.nonce
    served_apps.take_away(SLUG)
    server.close()


def test_what_a_dead_worker_held_is_answered_before_the_next_fence(
        sim_stack, before, second, page, worker):
    sandbox = served_apps.fence(SLUG, 60)
    until(lambda: drained_sandboxes.is_drained(sandbox))
    with client(sim_stack, HOST) as http, ThreadPoolExecutor(1) as visitor:
        held = visitor.submit(http.get, "/nonce")
        worker(second, deploy_fence_s=30)
        assert held.result().text == page
    assert fence_of(sim_stack, before) is None and frozen_or_thawed(before) == ["thawed"]
    assert query(sim_stack, "SELECT 1 FROM drains WHERE sandbox_id = %s", sandbox) == []
    assert state(sim_stack, second) == ("queued", 0, None, None), "that is no attempt"
    worker(second, deploy_fence_s=30)
    assert state(sim_stack, second)[0] == "succeeded"
    assert frozen_or_thawed(before) == ["thawed", "frozen"]


def test_after_the_last_attempt_too(sim_stack, before, second, page, worker):
    query(sim_stack, """UPDATE deploy_runs SET manifest = manifest || '{"moves": 5}'
                        WHERE id = %s""", second)
    served_apps.fence(SLUG, 60)
    worker(second)
    assert fence_of(sim_stack, before) is None and frozen_or_thawed(before) == ["thawed"]
    worker(second)
    assert state(sim_stack, second)[0] == "failed" and frozen_or_thawed(before) == ["thawed"]


def test_who_has_lost_its_lease_leaves_the_version_before_to_its_successor(
        sim_stack, before, guest, second, worker):
    """That is at the same, and has it frozen."""
    asked, taken = guest.reply_to, []

    def reply_to(piece):
        if WRITTEN in piece:
            query(sim_stack, "UPDATE deploy_runs SET epoch = epoch + 1 WHERE id = %s", second)
            query(sim_stack, "UPDATE deploys SET fence_until = fence_until + interval '1 s'"
                             " WHERE app_id = %s", before.app_id)
            taken.append(fence_of(sim_stack, before))
        return CANNOT if taken and FLUSH in piece else asked(piece)

    guest.reply_to = reply_to
    worker(second, deploy_fence_s=30)
    assert taken == [fence_of(sim_stack, before)] != [None]
    assert frozen_or_thawed(before) == ["frozen"]
    assert query(sim_stack, "SELECT 1 FROM drains WHERE sandbox_id = %s", before.sandbox) == [(1,)]


def test_a_flip_whose_answer_is_lost_does_not_thaw_what_is_retired(
        sim_stack, before, second, worker, monkeypatch):
    """As when Postgres dies between the commit and its answer: it is asked again."""
    publish, asked = publishing.publish_served, []

    def publish_and_lose(*arguments):
        asked.append(arguments)
        publish(*arguments)
        raise peewee.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(publishing, "publish_served", publish_and_lose)
    worker(second, deploy_fence_s=30)
    assert len(asked) == 2
    assert state(sim_stack, second) == ("succeeded", 1, None, 1)
    assert frozen_or_thawed(before) == ["frozen"]
