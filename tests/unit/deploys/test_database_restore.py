"""When the database of an app may be put into a guest."""
from types import SimpleNamespace

import pytest

from config.settings import load
from nodeworker.deploys import database_restore
from services.operations.claims import LeaseLost


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """Has a copy made of what is stored, once `renew` has been asked whose the run is; gives what
    is put into the guest, and within how long."""
    def copy(renew):
        noted = []

        def restore(settings, prefix, file, txid):
            file.write_bytes(b"rows")
            return True

        def write_file(path, pieces, **options):
            noted.append((path, b"".join(pieces), options["timeout_s"]))

        monkeypatch.setattr(database_restore.replication, "restore", restore)
        monkeypatch.setattr(database_restore, "when_database_answers", lambda ask: ask())
        monkeypatch.setattr(database_restore.runs, "renew", renew)
        deps = SimpleNamespace(settings=load({"SVC_NODE_DIR": str(tmp_path)}))
        try:
            assert database_restore.copy(deps, "the run", SimpleNamespace(write_file=write_file),
                                         "p/", "/db", left_s=lambda: left_s.pop())
        except LeaseLost:
            assert noted == []
            raise
        return noted

    left_s = [7.0]
    return copy


def test_it_has_what_is_left_once_it_is_known_whose_the_run_is(copied):
    assert copied(lambda *_: None) == [("/db", b"rows", 7.0)]


def test_nothing_is_put_into_a_guest_that_is_somebody_elses_by_then(copied):
    def lost(*_):
        raise LeaseLost("another worker is at it")

    with pytest.raises(LeaseLost):
        copied(lost)
