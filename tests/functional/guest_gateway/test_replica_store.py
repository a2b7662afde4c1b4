"""The object store for guests: each reaches its own prefix and nothing else, and Litestream works
with that."""
import contextlib
import dataclasses
import hashlib
import http.client
import os
import sqlite3

import pytest

from app.guest_gateway.replica_store.allowed_requests import OBJECT_MOST_BYTES
from models.database import connect, connection, database
from models.sandboxes import Sandbox
from nodeworker.deploys import replication
from nodeworker.deploys.replica_files import ReplicaBroken
from objects.store import ObjectStore
from services.deploys.served import replica_keys
from tests.clients.guest_gateway import Asker
from tests.clients.replicas import Guest, replicating, signed
from tests.host.guest_places import guest_places
from tests.stack.waiting import until

MINE, OTHERS = "apps/mine/v1-1/db/", "apps/others/v1-1/db/"


@pytest.fixture(scope="module")
def guests(sim_stack, alice):
    """Two guests of alice's, each with a key, and objects of both."""
    connect(sim_stack.settings.database_url, pool_size=5)
    port = sim_stack.settings.guest_gateway_port
    # Of a network of its own: other processes of a parallel run have theirs at the same time.
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    store = ObjectStore(sim_stack.settings)
    with guest_places(f"trl{number}", f"10.254.{number}.0/24", port, count=2) as places:
        made = []
        for place, prefix in zip(places, (MINE, OTHERS), strict=True):
            asker = Asker(sim_stack, alice.create()["id"], place)
            store.put_stream(f"{prefix}there", [prefix.encode()])
            made.append(Guest(asker, replica_keys.issue(sim_stack.settings, asker.sandbox_id,
                                                        prefix)))
        yield made
    for one in made:
        alice.delete(f"/v1/sandboxes/{one.asker.sandbox_id}")
    database.close_all()


@pytest.fixture
def guest(guests):
    return guests[0]


@pytest.fixture(scope="module")
def store(sim_stack):
    return ObjectStore(sim_stack.settings)


def content(store, key):
    return b"".join(store.get_stream(key))


def test_its_own_objects(guest, store):
    assert guest.status("PUT", f"{MINE}a%2Bb%20c/1", body=b"12345",
                        headers={"X-Amz-Meta-Made": "today"}) == 200
    assert content(store, f"{MINE}a+b c/1") == b"12345"
    path = f"/{guest.key.bucket}/{MINE}a%2Bb%20c/1"
    assert guest.ask("GET", path)[2] == b"12345"
    _, headers, body = guest.ask("GET", path, headers={"Range": "bytes=1-2"})
    assert (body, headers["Content-Range"]) == (b"23", "bytes 1-2/5")
    assert guest.ask("HEAD", path)[1]["X-Amz-Meta-Made"] == "today"
    listed = guest.ask("GET", f"/{guest.key.bucket}?list-type=2&prefix={MINE}a")[2]
    assert listed.count(b"<Key>") == 1
    assert guest.status("DELETE", f"{MINE}a%2Bb%20c/1") == 204
    assert guest.status("GET", f"{MINE}a%2Bb%20c/1") == 404


def test_an_object_in_parts_and_a_batch_of_deletes(guest, store):
    key = f"{MINE}parts"
    begun = guest.ask("POST", f"/{guest.key.bucket}/{key}?uploads")[2].decode()
    upload = begun.partition("<UploadId>")[2].partition("<")[0]
    part = os.urandom(5 << 20)
    parts = ""
    for number in (1, 2):
        answer = guest.ask("PUT", f"/{guest.key.bucket}/{key}?partNumber={number}"
                           f"&uploadId={upload}", part)
        parts += f"<Part><PartNumber>{number}</PartNumber><ETag>{answer[1]['ETag']}</ETag></Part>"
    done = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    assert guest.status("POST", key, f"uploadId={upload}", done) == 200
    assert content(store, key) == part * 2
    declared = b'<?xml version="1.0" encoding="UTF-8"?>' + batch(key)
    assert guest.status("POST", query="delete", body=declared) == 200
    assert store.find_size(key) is None


def test_objects_in_parts_that_are_only_begun_are_few(guest, store):
    """A store may have a bound for those of everybody."""
    begun = [guest.status("POST", f"{MINE}begun-{number}", "uploads") for number in range(9)]
    open_now = store.list_uploads(MINE)
    store.give_up_uploads(MINE)
    assert begun == [200] * 8 + [403] and len(open_now) == 8


def batch(key):
    return f"<Delete><Object><Key>{key}</Key></Object></Delete>".encode()


@pytest.mark.parametrize(("method", "key", "query", "body", "headers"), [
    ("GET", f"{OTHERS}there", "", b"", {}),
    ("HEAD", f"{OTHERS}there", "", b"", {}),
    ("PUT", f"{OTHERS}new", "", b"x", {}),
    ("DELETE", f"{OTHERS}there", "", b"", {}),
    ("POST", f"{OTHERS}there", "uploads", b"", {}),
    ("GET", "apps/mine/v1-1/files.json", "", b"", {}),
    ("GET", "apps/mine/v1-1/db", "", b"", {}),
    ("GET", "apps/mine/v1-1/db2/x", "", b"", {}),
    ("GET", f"{MINE}../../../others/v1-1/db/there", "", b"", {}),
    ("GET", f"{MINE}%2e%2e/%2e%2e/%2e%2e/others/v1-1/db/there", "", b"", {}),
    ("GET", f"{MINE}./there", "", b"", {}),
    ("GET", f"{MINE}/there", "", b"", {}),
    ("PUT", f"{MINE}a%5C..%5Cb", "", b"x", {}),
    ("PUT", f"{MINE}a%00b", "", b"x", {}),
    ("PUT", MINE, "", b"x", {}),
    ("GET", "", "list-type=2", b"", {}),
    ("GET", "", "list-type=2&prefix=", b"", {}),
    ("GET", "", "list-type=2&prefix=apps/mine/", b"", {}),
    ("GET", "", f"list-type=2&prefix={MINE[:-1]}", b"", {}),
    ("GET", "", f"list-type=2&prefix={OTHERS}", b"", {}),
    ("GET", "", f"list-type=2&prefix={MINE}../../../others", b"", {}),
    ("GET", "", f"list-type=2&prefix={MINE}&delimiter=s", b"", {}),
    ("GET", "", f"prefix={MINE}", b"", {}),
    ("GET", "", f"list-type=1&prefix={MINE}", b"", {}),
    ("GET", "", f"versions&prefix={MINE}", b"", {}),
    ("GET", "", "uploads", b"", {}),
    ("GET", "", "acl", b"", {}),
    ("GET", "", "location", b"", {}),
    ("PUT", "", "", b"", {}),
    ("DELETE", "", "", b"", {}),
    ("PUT", f"{MINE}x", "acl", b"", {}),
    ("PUT", f"{MINE}x", "tagging", b"", {}),
    ("GET", f"{MINE}there", "versionId=1", b"", {}),
    ("PUT", f"{MINE}copy", "", b"", {"X-Amz-Copy-Source": f"/replicas/{OTHERS}there"}),
    ("PUT", f"{MINE}copy", "partNumber=1&uploadId=1", b"",
     {"X-Amz-Copy-Source": f"/svc/{OTHERS}there"}),
    ("PUT", f"{MINE}public", "", b"x", {"X-Amz-Acl": "public-read"}),
    ("POST", "", "delete", batch(f"{OTHERS}there"), {}),
    ("POST", "", "delete", batch(f"{MINE}there</Key></Object><Object><Key>{OTHERS}there"), {}),
    ("PATCH", f"{MINE}there", "", b"", {}),
])
def test_what_is_not_its_own_is_refused(guest, store, method, key, query, body, headers):
    path = f"/{guest.key.bucket}" + (f"/{key}" if key else "") + (f"?{query}" if query else "")
    status, _, said = guest.ask(method, path, body, headers)
    assert status == 403 and b"signature" not in said, said
    assert content(store, f"{OTHERS}there") == OTHERS.encode()
    assert content(store, f"{MINE}there") == MINE.encode()
    both = [*store.list_objects("apps/mine/"), *store.list_objects("apps/others/")]
    assert {stored.key for stored in both} <= {f"{MINE}there", f"{OTHERS}there"}


@pytest.mark.parametrize("body", [
    b"", b"<Delete>", b"<Delete></Delete>", b'<!DOCTYPE x [<!ENTITY k "x">]><Delete>&k;</Delete>',
    batch(f"{MINE}there<x/>/../../../../others/v1-1/db/there"),
    b'<?xml version="1.0" encoding="UTF-7"?>' + batch(f"{MINE}there"),
    batch(f"{MINE}there<?x?>"), batch(f"{MINE}there</Key>{'<a/>' * 20_000}<Key>{MINE}there")],
    ids=range(8))
def test_a_batch_that_cannot_be_read_in_one_way_alone_is_400(guest, store, body):
    assert guest.status("POST", query="delete", body=body) == 400
    assert content(store, f"{MINE}there") == MINE.encode()


def test_another_bucket_is_none(guest):
    for path in ("/svc", f"/svc/{MINE}there", "/replicas2", "/"):
        assert guest.ask("GET", path)[0] in (401, 403)


def test_a_signature_that_is_not_right_is_refused(guests, guest, sim_stack):
    other, path = guests[1], f"/{guest.key.bucket}/{MINE}there"
    assert guest.ask("GET", path)[0] == 200
    assert guest.ask("GET", path, secret="0" * 64)[0] == 403
    assert guest.ask("GET", path, secret=sim_stack.settings.s3_secret_key,
                     key_id=sim_stack.settings.s3_access_key)[0] == 403
    stolen = Guest(other.asker, guest.key)
    assert stolen.ask("GET", path)[0] == 403, "from another's address"
    for spoil in (
            lambda headers: headers.pop("Authorization"),
            lambda headers: headers.update({"X-Amz-Date": "20200101T000000Z"}),
            lambda headers: headers.update({"X-Amz-Date": "yesterday"}),
            lambda headers: headers.update({"X-Amz-Acl": "private"}),
            lambda headers: headers.update({"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}),
            lambda headers: headers.update(
                {"Authorization": headers["Authorization"].replace("host;", "")}),
            lambda headers: headers.update({"Authorization": "Bearer x"})):
        assert guest.ask("GET", path, spoil=spoil)[0] == 403
    for query in ("?Signature=x", "?X-Amz-Signature=x&X-Amz-Credential=y"):
        assert guest.ask("GET", path + query, spoil=lambda headers: headers.pop(
            "Authorization"))[0] == 403


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_a_body_that_was_not_signed_is_no_object(guest, store, size):
    path = f"/{guest.key.bucket}/{MINE}forged"
    assert guest.ask("PUT", path, b"y" * size, sent=b"x" * size)[0] == 400
    assert store.find_size(f"{MINE}forged") is None
    digest = hashlib.sha256(b"").hexdigest()
    assert guest.ask("PUT", path, b"", sent=b"x", spoil=lambda headers: headers.update(
        {"X-Amz-Content-SHA256": digest}))[0] == 400
    assert store.find_size(f"{MINE}forged") is None


def test_a_body_that_is_too_large_is_refused_at_once(guest):
    path = f"/{guest.key.bucket}/{MINE}large"
    assert guest.ask("PUT", path, b"", sent=b"", spoil=lambda headers: headers.update(
        {"Content-Length": str(OBJECT_MOST_BYTES + 1)}))[0] == 413


def test_the_key_of_a_guest_ends_with_it(guest, sim_stack):
    path, sandbox_id = f"/{guest.key.bucket}/{MINE}there", guest.asker.sandbox_id
    settings = sim_stack.settings
    again = replica_keys.issue(settings, sandbox_id, MINE)
    assert again == guest.key and guest.key.secret not in repr(again)
    with connection():
        asleep = Sandbox.update(status="hibernated").where(Sandbox.id == sandbox_id)
        asleep.execute()
    assert guest.ask("GET", path)[0] == 503
    with connection():
        Sandbox.update(status="running").where(Sandbox.id == sandbox_id).execute()
    assert guest.ask("GET", path)[0] == 200
    replica_keys.revoke(sandbox_id)
    assert guest.ask("GET", path)[0] == 403
    next_one = replica_keys.issue(settings, sandbox_id, MINE)
    assert next_one.key_id != guest.key.key_id and guest.ask("GET", path)[0] == 403
    guest.key = next_one
    assert guest.ask("GET", path)[0] == 200


def test_what_comes_slowly_is_no_object_once_its_key_is_taken_away(guest, store, sim_stack):
    path, body = f"/{guest.key.bucket}/{MINE}slow", os.urandom(4000)
    link = http.client.HTTPConnection("gateway")
    link.sock = guest.asker.connect()
    with contextlib.closing(link):
        link.putrequest("PUT", path, skip_host=True)
        for name, value in signed(guest.key, "PUT", path, body).items():
            link.putheader(name, value)
        link.putheader("Content-Length", str(len(body)))
        link.endheaders(body[:2000])
        assert guest.status("GET", f"{MINE}there") == 200, "it is at the first half by now"
        replica_keys.revoke(guest.asker.sandbox_id)
        link.send(body[2000:])
        assert link.getresponse().status == 403
    assert f"{MINE}slow" not in [found.key for found in store.list_objects(MINE)]
    guest.key = replica_keys.issue(sim_stack.settings, guest.asker.sandbox_id, MINE)


def test_a_prefix_has_one_key(guests, sim_stack):
    one, other = guests
    taken = replica_keys.issue(sim_stack.settings, other.asker.sandbox_id, MINE)
    assert one.status("GET", f"{MINE}there") == 403
    assert Guest(other.asker, taken).status("GET", f"{MINE}there") == 200
    assert other.status("GET", f"{OTHERS}there") == 403, "one sandbox one prefix"
    for guest, prefix in zip(guests, (MINE, OTHERS), strict=True):
        guest.key = replica_keys.issue(sim_stack.settings, guest.asker.sandbox_id, prefix)


def test_old_secrets_are_believed_while_the_boxs_key_changes(guest, sim_stack):
    settings = dataclasses.replace(
        sim_stack.settings, guest_secret=f"new,{sim_stack.settings.guest_secret}")
    grant = replica_keys.find_grant(settings, guest.asker.place.address, guest.key.key_id)
    assert guest.key.secret in grant.secrets and len(grant.secrets) == 2
    with connection():
        assert grant.owner_id == Sandbox.get_by_id(guest.asker.sandbox_id).owner_id


@pytest.mark.slow
def test_a_database_is_replicated_and_restored(guest, sim_stack, tmp_path):
    """Rows while it runs, more than fit one part, and none lost at its end."""
    path, settings = tmp_path / "app.db", sim_stack.settings
    restored = tmp_path / "restored.db"
    assert replication.restore(settings, f"{MINE}nothing/", restored) is False
    with contextlib.closing(sqlite3.connect(path)) as rows, replicating(guest, path):
        rows.execute("CREATE TABLE t (x)")
        for number in range(30):
            rows.execute("INSERT INTO t VALUES (?)", (number,))
            rows.commit()
        until(lambda: restorable(settings, restored) == 30, 20)
        rows.execute("CREATE TABLE large AS SELECT randomblob(20000000)")
        rows.execute("INSERT INTO t VALUES (99)")
        rows.commit()
    assert restorable(settings, restored) == 31
    assert replication.check(settings, MINE) and not replication.check(settings, OTHERS)
    with pytest.raises(ReplicaBroken):
        replication.restore(settings, MINE, restored, "0000000000ffffff")
    assert not list(tmp_path.glob(".restoring-*"))


def restorable(settings, path):
    """Rows of what can be restored now."""
    if replication.restore(settings, MINE, path):
        with contextlib.closing(sqlite3.connect(path)) as rows:
            with contextlib.suppress(sqlite3.OperationalError):
                return rows.execute("SELECT count(*) FROM t").fetchone()[0]
    return None
