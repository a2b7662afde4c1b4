"""What Litestream is told in a guest, and what a guest may answer."""
import json
from types import SimpleNamespace

import pytest

from nodeworker.deploys import replication
from nodeworker.deploys.replication import NotReplicated
from services.deploys.served.replica_keys import ReplicaKey

KEY = ReplicaKey("svckey", "the secret", "replicas", "apps/a/v1-1/db/")


@pytest.mark.parametrize("path", ["/home/user/app.db", "/home/user/a b/$HOME: {x}\n.db"])
def test_the_configuration_names_one_database_and_its_prefix(path):
    told = json.loads(replication.config_text(path, KEY))
    [database] = told["dbs"]
    assert database["path"] == path
    assert database["replica"]["path"] == "apps/a/v1-1/db"
    assert database["replica"]["endpoint"] == "http://169.254.42.1:8790"
    assert "the secret" not in repr(KEY)


def test_its_own_state_is_beside_the_database():
    assert replication.state_directory("/home/user/app.db") == "/home/user/.app.db-litestream"


class Guest:
    """An agent whose guest answers a sync as it likes."""

    def __init__(self, said, exit_code=0):
        self.said, self.exit_code = said, exit_code

    def exec(self, argv, **limits):
        return SimpleNamespace(stdout=self.said, stderr=b"", exit_code=self.exit_code)


def test_a_sync_gives_the_transaction_that_restore_takes():
    assert replication.sync(Guest(b'{"txid":27,"replicated_txid":27}'), "/x") == "000000000000001b"
    assert replication.sync(Guest(b"", exit_code=9), "/x") is None


@pytest.mark.parametrize("said", [
    b"", b"no json", b"[]", b"{}", b'{"error":"database not found"}', b"[" * 10000,
    b'{"txid":27,"replicated_txid":26}', b'{"txid":0,"replicated_txid":0}',
    b'{"txid":-1,"replicated_txid":-1}', b'{"txid":"27","replicated_txid":"27"}',
    b'{"txid":1.5,"replicated_txid":1.5}', b'{"txid":NaN,"replicated_txid":NaN}',
    b'{"txid":1e400,"replicated_txid":1e400}',
    b'{"txid":99999999999999999999,"replicated_txid":99999999999999999999}'])
def test_what_is_no_proof_is_none(said):
    with pytest.raises(NotReplicated):
        replication.sync(Guest(said, exit_code=0), "/x")
