"""Packages for guests: fetched once for all of them, and nothing but packages."""
import contextlib
import json
import os
import threading
import time

import pytest

from app.guest_gateway.npm.fetch_places import OF_ONE_GUEST
from config.guest_gateway import URL
from models.database import connection
from models.sandboxes import Sandbox
from models.users import User
from tests.fakes.npm_registry import SHORT
from tests.stack.waiting import until


@pytest.fixture(autouse=True)
def calm(registry):
    """The registry as it is by default."""
    registry.status = None
    registry.seen.clear()
    yield
    registry.gate.set()


@pytest.fixture
def strangers(askers, alice_id, mallory):
    """The two guests, the second of which is mallory's."""
    def give(owner_id):
        with connection():
            Sandbox.update(owner=owner_id).where(Sandbox.id == askers[1].sandbox_id).execute()

    with connection():
        mallory_id = User.get(User.email == mallory.email).id
    give(mallory_id)
    yield askers
    give(alice_id)


def get(asker, path, **headers):
    status, _, body = asker.ask(f"/npm{path}", headers=headers, secret="")
    return status, body


def asked(registry):
    return [path for _, path, _ in registry.seen]


def test_a_package_is_fetched_once_for_all(askers, registry):
    one, other = askers
    registry.publish("@team/left", "1.0.0", {"index.js": "left"})
    for asker, path in ((one, "/@team%2fleft"), (other, "/@team/left")):
        status, body = get(asker, path, Accept=SHORT)
        dist = json.loads(body)["versions"]["1.0.0"]["dist"]
        assert (status, dist["tarball"]) == (200, f"{URL}/npm/@team/left/-/left-1.0.0.tgz")
        tarball = get(asker, "/@team/left/-/left-1.0.0.tgz")
        assert tarball == (200, registry.tarballs["/@team/left/-/left-1.0.0.tgz"])
    assert asked(registry) == ["/of/all/@team%2fleft", "/of/all/@team/left/-/left-1.0.0.tgz"]


def test_nothing_that_a_guest_sends_goes_on_or_chooses_what_others_get(askers, registry):
    one, other = askers
    registry.publish("plain", "1.0.0", {})
    first = get(one, "/plain", Accept="text/x", Authorization="Bearer of-a-guest", Cookie="c=1",
                **{"X-Forwarded-Host": "evil", "Range": "bytes=0-1"})
    assert get(other, "/plain?x=1", Accept="*/*")[0] == 200
    assert first[0] in (200, 206) and len(registry.seen) == 1
    sent = {name.lower() for name in registry.seen[0][2]}
    assert sent == {"host", "accept", "accept-encoding", "user-agent"}


@pytest.mark.parametrize(("path", "status"), [
    ("/-/ping", 200), ("/", 404), ("/-/npm/v1/security/audits", 404), ("/a/../../x", 404),
    ("/%2e%2e/x", 404), ("//x", 404)])
def test_nothing_but_packages_is_there(asker, registry, path, status):
    assert get(asker, path)[0] == status
    assert registry.seen == []


def test_nothing_is_taken_from_guests(asker, registry):
    assert asker.ask("/npm/plain", {"a": 1}, secret="")[0] == 405
    assert registry.seen == []


def test_those_who_want_the_same_wait_for_one_fetch(askers, registry):
    registry.publish("wanted", "1.0.0", {})
    registry.gate.clear()
    answers = []
    threads = [threading.Thread(target=lambda asker=asker: answers.append(get(asker, "/wanted")))
               for asker in (*askers, *askers)]
    for thread in threads:
        thread.start()
    until(lambda: asked(registry) == ["/of/all/wanted"], 10)
    registry.gate.set()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 4 and len(set(answers)) == 1 and answers[0][0] == 200
    assert len(registry.seen) == 1


def test_a_guest_that_hangs_up_again_and_again_keeps_nobody_from_packages(strangers, registry):
    one, other = strangers
    registry.publish("others", "1.0.0", {})
    registry.gate.clear()
    with contextlib.ExitStack() as opened:
        for number in range(OF_ONE_GUEST + 10):
            link = opened.enter_context(contextlib.closing(one.connect()))
            link.sendall(f"GET /npm/left-{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            if number < OF_ONE_GUEST:
                until(lambda begun=number + 1: len(registry.seen) == begun, 10)
                link.close()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(get(other, "/others")))
        thread.start()
        until(lambda: "/of/all/others" in asked(registry), 10)
        time.sleep(0.5)
        assert len(registry.seen) == OF_ONE_GUEST + 1
    registry.gate.set()
    thread.join(30)
    assert answers[0][0] == 200
    assert get(one, "/left-new")[0] == 404, "its places come back"


def test_a_registry_that_is_away_takes_only_what_is_new(asker, registry, log):
    registry.publish("known", "1.0.0", {})
    before = get(asker, "/known")
    registry.publish("known", "1.0.1", {})
    assert get(asker, "/known") == before, "for five minutes"
    for kept in (log.parent / "npm").glob("??/*"):
        os.utime(kept, (1, 1))
    registry.status = 500
    assert get(asker, "/known") == before
    for new in ("/known/-/known-1.0.1.tgz", "/never-asked-for"):
        assert get(asker, new)[0] == 503
    registry.status = None
    assert get(asker, "/known") != before
    assert get(asker, "/known/-/known-1.0.1.tgz")[0] == 200


def test_what_is_not_there_may_be_later(asker, registry):
    assert get(asker, "/later")[0] == 404
    registry.publish("later", "1.0.0", {})
    assert get(asker, "/later")[0] == 200
