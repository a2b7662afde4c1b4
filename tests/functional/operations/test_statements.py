"""Reads that every request makes: compiled once, right for every value, and few of them per
request."""
import io
import logging
from datetime import timedelta

import peewee
import pytest

from models.database import connection, database, now
from models.nodes import Node
from models.operations import OutboxMessage
from models.row import Lookup, PairStatement, Statement
from models.sandboxes import Sandbox
from models.users import User
from services.errors import Forbidden, NotFound
from services.guest_calls import guest
from services.sandboxes.caller import Caller

NAMES = ("ann", "ben", "cat")


@pytest.fixture(scope="module", autouse=True)
def people(edge):
    with connection():
        for number, name in enumerate(NAMES):
            User.create(id=name, email=f"{name}@example.org", password_hash="x",
                        plan="free", created_at=now() - timedelta(days=number))


@pytest.mark.parametrize("prepared", [False, True])
def test_each_call_gives_the_row_of_its_own_value(prepared):
    by_id = Statement(User, lambda user_id: User.select().where(User.id == user_id),
                      prepared=prepared)
    with connection():
        found = [by_id.find(name) for name in NAMES]
        assert [user.email for user in found] == [f"{name}@example.org" for name in NAMES]
        assert by_id.find("nobody") is None
        assert by_id.find("' OR true --") is None


def test_one_is_prepared_once_for_each_connection_whatever_becomes_of_it():
    by_id = Statement(User, lambda user_id: User.select(User.id, User.plan).where(
        User.id == user_id), prepared=True)

    def prepared():
        """How often this connection has, and its server's number."""
        return database.execute_sql(
            "SELECT count(*), pg_backend_pid() FROM pg_prepared_statements"
            " WHERE statement LIKE '%%SELECT \"t1\".\"id\", \"t1\".\"plan\"%%'").fetchone()

    with connection():
        assert [by_id.find(name).id for name in NAMES] == list(NAMES)
        count, first = prepared()
        assert count == 1
        with pytest.raises(peewee.DataError), database.atomic():
            by_id.find("ann")
            database.execute_sql("SELECT 1 / 0")
        database.execute_sql("ALTER TABLE users ADD COLUMN more integer")
        assert by_id.find("ben").plan == "free"
        database.execute_sql("ALTER TABLE users DROP COLUMN more")
        assert by_id.find("ben").plan == "free" and prepared() == (1, first)
    database.close_idle()
    with connection():
        assert by_id.find("cat").id == "cat"
        count, second = prepared()
        assert count == 1 and second != first


def test_the_text_is_made_once_and_constants_stay_what_they_are():
    built = []

    def build(since, name):
        built.append(1)
        return User.select().where((User.created_at > since) & (User.id != name)
                                   & (User.plan == "free"))

    recent = Statement(User, build, values=2)
    with connection():
        assert {user.id
                for user in recent.all(now() - timedelta(days=1.5), "ann")} & set(NAMES) == {"ben"}
        assert {user.id for user in recent.all(now() - timedelta(days=9), "")} >= set(NAMES)
    assert len(built) == 1


def test_what_its_columns_are_is_found_out_once(monkeypatch):
    looked, known = [], peewee._resolve_model_columns
    monkeypatch.setattr(peewee, "_resolve_model_columns",
                        lambda *given: looked.append(1) or known(*given))
    by_id = Statement(User, lambda user_id: User.select().where(User.id == user_id))
    with connection():
        found = [by_id.find(name) for name in NAMES]
        assert found == [User(id=name) for name in NAMES]
        assert [user.created_at.tzinfo is None for user in found] == [False] * 3
        assert not any(user.dirty_fields for user in found)
    assert len(looked) == 1


def test_other_columns_become_attributes():
    shouted = Statement(
        User,
        lambda user_id: User.select(User.id, User.email.alias("address")).where(User.id == user_id))
    with connection():
        assert shouted.find("ann").address == "ann@example.org"


def test_a_row_is_found_by_its_key_and_there_may_be_none():
    with connection():
        assert User.find_by_id("ben").email == "ben@example.org"
        assert User.find_by_id("nobody") is None
        with pytest.raises(peewee.DoesNotExist):
            User.get_by_id("nobody")


def test_a_new_row_is_what_the_database_has_of_it():
    given = {"queue": "q", "job": "j", "payload": {"b": [1, "'"], "a": None}}
    with connection():
        made = [OutboxMessage.create(**given),
                OutboxMessage.create(created_at=now() - timedelta(days=1), **given)]
        assert made[1].id > made[0].id and not any(row.dirty_fields for row in made)
        for row in made:
            assert OutboxMessage.get_by_id(row.id).__data__ == row.__data__
            assert row.delete_instance() == 1


def test_columns_of_every_kind_come_back_as_they_went():
    chosen = {"presets": ["pi", "a'b\"c"], "address": "10.0.0.1", "vcpus": 2}
    with connection():
        kinds = dict(id="node-x", mem_mb=1, host_port_low=1, host_port_high=2,
                     heartbeat_at=now())
        Node.create(**kinds | chosen)
        found = Node.get_by_id("node-x")
        assert {name: getattr(found, name) for name in chosen} == chosen
        found.delete_instance()
        with pytest.raises(peewee.DoesNotExist):
            Node.get_by_id("node-x")
        with pytest.raises(peewee.IntegrityError):
            User.create(id="ann", email="ann@example.org", password_hash="x", plan="free")


def test_a_wrong_number_of_values_is_refused():
    with connection(), pytest.raises(ValueError):
        Statement(Sandbox,
                  lambda sandbox_id: Sandbox.select().where(Sandbox.id == sandbox_id)).find(
                      "a", "b")


def test_two_rows_are_found_at_once_and_the_second_may_not_be_there():
    lookup = Lookup(
        Node, Node.id, Node.presets, Sandbox.status.alias("one_of_its_sandboxes"),
        join=lambda query: query.left_outer_join(Sandbox, on=Sandbox.node_id == Node.id))
    both = PairStatement(User, lambda name: User.select(User.id, User.email.alias("address")).where(
        User.id == name), lookup)
    with connection():
        Node.create(id="node-y", mem_mb=1, vcpus=1, address="10.0.0.1", host_port_low=1,
                    host_port_high=2, heartbeat_at=now(), presets=["pi"])
        try:
            user, node = both.find("ann", "node-y")
            assert (user.id, user.address) == ("ann", "ann@example.org")
            assert (node.id, node.presets, node.one_of_its_sandboxes) == ("node-y", ["pi"], None)
            assert lookup.find("node-y").__data__ == node.__data__
            user, node = both.find("ben", "none")
            assert (user.id, node) == ("ben", None) and lookup.find("none") is None
            assert both.find("nobody", "node-y") is None
        finally:
            Node.delete_by_id("node-y")


@pytest.fixture
def asks(edge, caplog):
    """Tells the statements of a call that is made for the second time."""

    def statements(method, path, headers, **options):
        for level in (logging.INFO, logging.DEBUG):
            caplog.clear()
            with caplog.at_level(level, logger="peewee"):
                answer = edge.api.open(path, method=method, headers=headers, **options)
        return answer, [record.getMessage() for record in caplog.records
                        if record.name == "peewee"]

    return statements


def test_reading_one_sandbox_asks_the_database_once(edge, asks):
    headers = edge.key(edge.newcomer())
    made = edge.api.post("/v1/sandboxes", headers=headers, json={}).json
    answer, asked = asks("GET", f"/v1/sandboxes/{made['id']}", headers)
    assert answer.status_code == 200 and answer.json["id"] == made["id"]
    assert len(asked) == 1 and "EXECUTE" in asked[0], "the key, its owner, the sandbox, its ports"


def test_what_was_read_with_the_key_is_judged_like_anything_else(edge, asks):
    owner, stranger = edge.newcomer(), edge.newcomer()
    made = edge.api.post("/v1/sandboxes", headers=edge.key(owner), json={}).json
    path = f"/v1/sandboxes/{made['id']}"
    for headers, place, status in (
        (edge.key(stranger), path, 403), (edge.key(owner), "/v1/sandboxes/none", 404),
        ({"Authorization": "Bearer svc_sk_unknown"}, path, 401),
        (edge.key(owner) | {"X-Svc-Node": "elsewhere"}, path, 421),
    ):
        answer, asked = asks("GET", place, headers)
        assert (answer.status_code, len(asked)) == (status, 1)


def test_with_a_body_that_is_still_being_sent_nothing_is_read_before_it_has_come(edge, asks):
    """The row may change until then."""
    headers = edge.key(edge.newcomer())
    made = edge.api.post("/v1/sandboxes", headers=headers, json={}).json

    class Body(io.BytesIO):
        is_slow = True

    path, found = f"/v1/sandboxes/{made['id']}/exec", []
    for kind in (io.BytesIO, Body):
        body = b'{"cmd": 5}' if kind is io.BytesIO else b"{}"
        answer, asked = asks("POST", path, headers, content_type="application/json",
                             environ_overrides={"wsgi.input": kind(body),
                                                "CONTENT_LENGTH": str(len(body))})
        assert answer.status_code == 400
        found.append(asked[0].count("%s"))
    assert found == [2, 1], "the key's hash and the sandbox's id, the key's hash"


def test_what_a_call_to_a_guest_needs_of_its_sandbox_is_one_statement(edge, caplog):
    owner = edge.newcomer()
    made = edge.api.post("/v1/sandboxes", headers=edge.key(owner), json={}).json
    with caplog.at_level(logging.DEBUG, logger="peewee"):
        found = guest.get_owned(Caller(owner), made["id"])
        asked = [record for record in caplog.records if "EXECUTE" in record.getMessage()]
    assert (found.id, found.node_id) == (made["id"], made["nodeId"])
    with connection():
        assert found.node_address == Node.get_by_id(made["nodeId"]).address
    assert len(asked) == 1
    with pytest.raises(Forbidden):
        guest.get_owned(Caller(edge.newcomer()), made["id"])
    with pytest.raises(NotFound):
        guest.get_owned(Caller(owner), "none")
