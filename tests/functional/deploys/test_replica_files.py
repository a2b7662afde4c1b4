"""What a guest has stored is a stranger's: it makes a database or an error, and nothing else."""
import contextlib
import dataclasses
import os
import sqlite3

import pytest

from nodeworker.deploys import replica_files, replication
from nodeworker.deploys.replica_files import ReplicaBroken
from objects.store import ObjectStore
from services.errors import Unavailable
from tests.functional.deploys.conftest import FIRST, replicate_once
from tests.stack.waiting import until


@pytest.fixture(scope="module")
def store(sim_stack):
    return ObjectStore(sim_stack.settings)


def test_a_replica_is_restored_in_a_room_of_its_own(sim_stack, store, good, tmp_path):
    prefix, target = "apps/good/v1-1/db/", tmp_path / "restored.db"
    store.put_stream(prefix + FIRST, [good])
    store.put_stream(f"{prefix}own/0000/file", [b"x"])
    assert replication.restore(sim_stack.settings, prefix, target, "0000000000000001")
    assert os.listdir(tmp_path) == ["restored.db"], "nothing is left beside it"
    assert (target.stat().st_uid, target.stat().st_mode & 0o777) == (0, 0o600)
    with contextlib.closing(sqlite3.connect(target)) as rows:
        assert rows.execute("SELECT x FROM t").fetchall() == [(7,)]


@pytest.mark.parametrize("spoil", [
    lambda good: b"", lambda good: good[:-10], lambda good: os.urandom(5000),
    lambda good: good[:200] + bytes(50) + good[250:], lambda good: b"SQLite format 3\0" + bytes(90),
], ids=["empty", "cut", "noise", "changed", "another format"])
def test_a_broken_replica_is_an_error_and_leaves_what_was_there(sim_stack, store, good, tmp_path,
                                                                spoil):
    prefix, target = f"apps/bad/v{abs(hash(spoil)) % 10 ** 6}-1/db/", tmp_path / "restored.db"
    store.put_stream(prefix + FIRST, [spoil(good)])
    target.write_text("before")
    with pytest.raises(ReplicaBroken):
        replication.restore(sim_stack.settings, prefix, target)
    assert not replication.check(sim_stack.settings, prefix)
    assert target.read_text() == "before" and os.listdir(tmp_path) == ["restored.db"]


def test_a_database_of_zeros_is_much_larger_than_what_is_stored_of_it(sim_stack, store, tmp_path):
    prefix, target = "apps/zeros/v1-1/db/", tmp_path / "restored.db"
    replica = replicate_once(tmp_path / "app.db", "CREATE TABLE t AS SELECT zeroblob(9e7) AS x")
    store.put_stream(prefix + FIRST, [replica])
    assert replication.restore(sim_stack.settings, prefix, target)
    assert target.stat().st_size > 9e7 > 50 * len(replica)


def test_below_the_floor_of_the_disk_none_is_made(sim_stack, store, good, tmp_path):
    prefix = "apps/floor/v1-1/db/"
    store.put_stream(prefix + FIRST, [good])
    settings = dataclasses.replace(sim_stack.settings, disk_floor_mb=1 << 40)
    with pytest.raises(Unavailable):
        replication.restore(settings, prefix, tmp_path / "restored.db")
    assert os.listdir(tmp_path) == []


def test_a_transaction_that_was_stored_and_is_gone_is_not_no_database(sim_stack, tmp_path):
    restore = (sim_stack.settings, "apps/gone/v1-1/db/", tmp_path / "restored.db")
    assert replication.restore(*restore) is False
    with pytest.raises(ReplicaBroken):
        replication.restore(*restore, "0000000000000001")
    assert os.listdir(tmp_path) == []


def test_what_a_killed_worker_left_of_a_database_goes_when_the_next_starts(sim_stack):
    left = sim_stack.settings.node_dir / ".databases" / "left"
    left.mkdir(parents=True, exist_ok=True)
    sim_stack.restart("node-deploy")
    until(lambda: not left.exists())


def test_too_much_is_not_fetched(sim_stack, store, good, tmp_path, monkeypatch):
    prefix = "apps/large/v1-1/db/"
    store.put_stream(prefix + FIRST, [good])
    for limit in ("_BYTES_MOST", "_OBJECTS_MOST"):
        with monkeypatch.context() as small:
            small.setattr(replica_files, limit, 0)
            with pytest.raises(ReplicaBroken):
                replication.restore(sim_stack.settings, prefix, tmp_path / "restored.db")
    assert os.listdir(tmp_path) == []
