"""A host uploads one disk at a time, and meanwhile its bulk lane does what else there is to do."""
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from models.database import connection, now
from models.snapshots import Snapshot
from models.states import SnapshotState
from models.users import User
from nodeworker.snapshots import disk_upload as job
from nodeworker.wiring import NodeDeps
from objects.store import ObjectStore
from services.snapshots import deletion, disk_upload
from services.snapshots.stored_objects import disk_key
from tasks.publisher import CeleryQueue
from tests.rows.snapshots import make_due, row, take
from tests.stack.waiting import becomes


class HeldStore(ObjectStore):
    """Stores nothing before it is let go on."""

    def __init__(self, settings):
        super().__init__(settings)
        self.was_asked, self.goes_on = threading.Event(), threading.Event()

    def put_once(self, key, path):
        self.was_asked.set()
        assert self.goes_on.wait(120)
        return super().put_once(key, path)


def test_what_comes_while_one_is_uploaded_holds_up_nobody_and_is_uploaded_after_it(
        alice, sim_stack, deps, driver, store, sandbox):
    settings, held = sim_stack.settings, HeldStore(sim_stack.settings)
    removed = take(alice, sandbox)
    becomes(lambda: row(removed).uploaded_to_store)
    with ThreadPoolExecutor(max_workers=1) as worker:
        try:
            sim_stack.crash("node-bulk")
            try:
                first, *others = (take(alice, sandbox) for _ in range(4))
                host = NodeDeps(settings, driver, CeleryQueue(settings), lambda sandbox: None)
                uploading = worker.submit(job.upload, host, held, first)
                becomes(held.was_asked.is_set)
            finally:
                sim_stack.start("node-bulk")
            deletion.delete(deps, removed)
            make_due(removed)
            becomes(lambda: row(removed).state, SnapshotState.DELETED)
            assert not any(row(taken).uploaded_to_store for taken in (first, *others))
        finally:
            held.goes_on.set()
        uploading.result()
    for taken in (first, *others):
        becomes(lambda taken=taken: row(taken).uploaded_to_store)
        assert store.find_size(disk_key(taken)) == row(taken).tarball_size_bytes
    becomes(lambda: [path.name for path in (settings.node_dir / "uploads").glob("*.waits")], [])


@pytest.fixture
def people(sim_stack, rows):
    """The ids of two owners."""
    with connection():
        return [User.get(User.email == sim_stack.people[f"SVC_{name}_EMAIL"]).id
                for name in ("ALICE", "BOB")]


def test_another_owners_is_next_and_then_the_oldest(sim_stack, people):
    """Also without those that need no upload. None is announced meanwhile: they are due later."""
    (one, other), node_id, present = people, sim_stack.settings.node_id, now()
    later = {"state": SnapshotState.READY, "upload_due_at": present + timedelta(hours=1)}
    wanted = [
        ("ended", one, {}), ("third", one, {}), ("fourth", one, {}), ("first", other, {}),
        ("second", other, {}), ("given-up", other, {"upload_due_at": None}),
        ("deleted", other, {"state": SnapshotState.DELETING}), ("unasked", other, {})]
    names = [name for name, _, _ in wanted]
    try:
        with connection():
            for age, (name, owner, more) in enumerate(reversed(wanted)):
                Snapshot.create(id=name, owner_id=owner, node_id=node_id, source_sandbox_id="box",
                                cwd="/", vcpus=1, mem_mb=1024,
                                created_at=present - timedelta(hours=age), **later | more)
            assert disk_upload.in_turn(node_id, names[:-1], "ended") == [
                "first", "second", "ended", "third", "fourth"]
            assert disk_upload.in_turn(node_id, [], "ended") == []
            assert disk_upload.in_turn("elsewhere", names, "ended") == []
    finally:
        with connection():
            Snapshot.delete().where(Snapshot.id.in_(names)).execute()
