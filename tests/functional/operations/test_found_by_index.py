"""Of the tables that keep what was asked for long ago, nothing is read whole to find one row."""
import logging

import pytest

from models.database import connection, database
from models.operations import IdempotencyKey
from models.states import SandboxStatus
from services.errors import Unavailable
from services.operations import finish, idempotency, sweeps
from services.sandboxes.copies import capture
from services.sandboxes.outcomes import Outcome
from services.sandboxes.outcomes import finish as finish_operation
from services.sandboxes.requests import CaptureRequest
from tests.rows.operations import boot, caller, claim
from tests.rows.plans import explain, nodes


@pytest.fixture
def indexes(caplog):
    """Calls something, and tells by which index each of its statements on a table finds rows; None
    if by none."""

    def found(table, call):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "peewee"):
            call()
        asked = [each.msg for each in caplog.records
                 if f'"{table}"' in each.msg[0] and " WHERE " in each.msg[0]]
        with connection(), database.atomic():
            # of a table with few rows
            database.execute_sql("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan"
                                 " = off")
            return [index for text, values in asked for index in scans(table, text, values)]

    return found


def scans(table, text, values):
    for node in nodes(explain(text, values, run=False)):
        if node.get("Relation Name") == table and node["Node Type"] != "ModifyTable":
            yield node.get("Index Name")


def test_why_a_capture_failed(deps, indexes):
    source, request = boot(deps), CaptureRequest(idempotency_key="again")

    def take(said):
        with pytest.raises(Unavailable, match=said):
            capture.take(deps, caller("alice"), source, request)

    take("still being taken")
    with connection():
        finish_operation(claim(source), Outcome(False, SandboxStatus.RUNNING, error="No room."))
    used = indexes("operations", lambda: take("No room."))
    assert used == ["operations_sandbox_id_op_seq_key"]


def test_the_key_of_what_was_made_and_of_what_could_not_be(deps, indexes):
    with connection():
        idempotency.reserve(deps.settings, "alice", "route", "key", body_hash="", resource_id="box")
        assert indexes("idempotency_keys", lambda: finish.keep_answer("box", {"id": "box"})) == [
            "idempotency_keys_resource"]
        assert idempotency.find_response("alice", "route", "key") == {"id": "box"}
        assert indexes("idempotency_keys", lambda: idempotency.release("route", "box")) == [
            "idempotency_keys_resource"]
        assert not IdempotencyKey.select().exists()


def test_what_is_to_be_forgotten(deps, indexes):
    assert "operations_ended" in indexes("operations", lambda: sweeps.forget_old(30))
