"""When the database of an app may be put into a guest."""
from types import SimpleNamespace

import pytest

from config.settings import load
from nodeworker.deploys import database_restore
from services.operations.claims import LeaseLost


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Has a copy made of what is stored; notes what it puts into the guest, and within how long."""
    noted = []

    def restore(settings, prefix, file, txid):
        file.write_bytes(b"rows")
        return True

    def write_file(path, pieces, **options):
        noted.append((path, b"".join(pieces), options["timeout_s"]))

    monkeypatch.setattr(database_restore.replication, "restore", restore)
    deps = SimpleNamespace(settings=load({"SVC_NODE_DIR": str(tmp_path)}))
    agent = SimpleNamespace(write_file=write_file)
    return noted, lambda held_for_s: database_restore.copy(deps, agent, "p/", "/db", held_for_s)


def test_it_takes_as_long_as_is_left_once_it_is_made(written):
    noted, copy = written
    assert copy(lambda: 7.0) and noted == [("/db", b"rows", 7.0)]


def test_nothing_is_put_into_a_guest_that_is_somebody_elses_by_then(written):
    noted, copy = written

    def lost():
        raise LeaseLost("another worker is at it")

    with pytest.raises(LeaseLost):
        copy(lost)
    assert noted == []
