"""The templates registry line by line: names, versions, and who may change what."""
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.database import connection
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SnapshotState
from models.templates import Template
from services.errors import Conflict, InvalidRequest, NotFound
from services.snapshots import deletion
from services.templates import registry, unused_versions
from tests.contract.templates.caller import SERVE, Caller, row

ENTRY = {
    "id", "version", "scope", "snapshotId", "startCommand", "readinessPort", "ports", "createdAt",
    "updatedAt"
}


def test_an_entry_shows_what_was_published(alice, name):
    taken = alice.snapshot()
    answer = alice.publish(name, snapshotId=taken, **SERVE)
    assert answer.status_code == 201 and answer.json.keys() == ENTRY
    assert answer.json | SERVE == answer.json
    assert (answer.json["id"], answer.json["version"], answer.json["scope"]) == (
        name, "1", "private",
    )
    assert answer.json["snapshotId"] == taken
    assert alice.get(name).json == answer.json == alice.get(f"{name}-v1").json


def test_everything_but_the_snapshot_may_be_left_out(alice, name):
    answer = alice.publish(name, snapshotId=alice.snapshot())
    assert (answer.json["startCommand"], answer.json["readinessPort"],
            answer.json["ports"]) == (None, None, [])


def test_the_same_user_by_key_token_or_service_is_one_namespace(edge, alice, name):
    alice.publish(name, snapshotId=alice.snapshot())
    for headers in (edge.jwt(alice.owner), edge.service(alice.owner)):
        assert Caller(edge, alice.owner, headers).get(name).json["version"] == "1"


def test_names_are_private(user, name):
    one, other = user(), user()
    mine, theirs = one.snapshot(), other.snapshot()
    assert other.get(name).status_code == 404
    assert one.publish(name, snapshotId=mine).status_code == other.publish(
        name, snapshotId=theirs).status_code == 201
    assert (one.get(name).json["snapshotId"], other.get(name).json["snapshotId"]) == (mine, theirs)
    assert other.delete(name).status_code == 200
    assert other.get(name).status_code == 404 and one.get(name).json["snapshotId"] == mine
    assert other.create(templateId=name).status_code == 404, "a stranger's name is no name"
    assert other.delete(name).status_code == 404


@pytest.mark.parametrize(("body", "complaint"), [
    ({}, "snapshotId"),
    ({"snapshotId": 5}, "snapshotId"),
    ({"snapshotId": "x", "surprise": 1}, "surprise"),
    ({"snapshotId": "x", "startCommand": "serve"}, "readinessPort"),
    ({"snapshotId": "x", "startCommand": "serve", "readinessPort": 3000}, "ports"),
    ({"snapshotId": "x", "startCommand": "serve", "readinessPort": 3000, "ports": [4000]}, "ports"),
    ({"snapshotId": "x", "ports": [0]}, "ports"),
    ({"snapshotId": "x", "readinessPort": 1024}, "readinessPort"),
    ({"snapshotId": "x", "version": 2}, "version"),
    ({"snapshotId": "x", "version": "beta"}, "digit"),
    ({"snapshotId": "x", "version": "1/2"}, "version"),
    ({"snapshotId": "x", "version": "1" * 33}, "version"),
])
def test_a_bad_body_is_400_and_named(alice, name, body, complaint):
    answer = alice.publish(name, **body)
    assert answer.status_code == 400 and complaint in answer.json["error"]
    assert alice.get(name).status_code == 404


@pytest.mark.parametrize("bad",
                         ["-x", ".x", "a b", "%C3%BC", "x" * 65, "a%0A", "x-v1%0A", "x-v1!", "_x"])
def test_an_impossible_name_is_400_everywhere(alice, bad):
    for answer in (alice.publish(bad,
                                 snapshotId=alice.snapshot()), alice.get(bad), alice.delete(bad)):
        assert answer.status_code == 400, answer.text


def test_only_ready_snapshots_of_ones_own_sandboxes(edge, user, name):
    one, other = user(), user()
    assert one.publish(name, snapshotId=other.snapshot()).status_code == 403
    assert one.publish(name, snapshotId="snapnone").status_code == 404
    for state, status in ((SnapshotState.PENDING, 409), (SnapshotState.FAILED, 409),
                          (SnapshotState.DELETED, 404)):
        assert one.publish(name, snapshotId=one.snapshot(state=state)).status_code == status
    assert one.publish(name, snapshotId=one.snapshot(transient=True)).status_code == 404
    taken = one.snapshot()
    with connection():
        source = Snapshot.get_by_id(taken).source_sandbox_id
        Sandbox.update(owner=other.owner.id).where(Sandbox.id == source).execute()
    assert one.publish(name,
                       snapshotId=taken).status_code == 403, "the sandbox must be the caller's, too"
    assert one.get(name).status_code == 404


def test_versions_count_up_and_the_name_is_the_latest(alice, name):
    first, second = alice.snapshot(), alice.snapshot()
    assert alice.publish(name, snapshotId=first).json["version"] == "1"
    assert alice.publish(name, snapshotId=second).json["version"] == "2"
    named = alice.publish(name, snapshotId=first, version="2.1-rc.1", ports=[80])
    assert named.status_code == 201 and alice.get(name).json == named.json
    assert alice.get(f"{name}-v2").json["snapshotId"] == second
    assert alice.get(f"{name}-v2.1-rc.1").json["ports"] == [80]
    assert alice.publish(name, snapshotId=first, **SERVE).json["version"] == "3"
    assert alice.get(f"{name}-v9").status_code == 404


def test_the_count_goes_on_past_numbers_of_six_digits_and_past_those_taken(alice, name):
    taken = [alice.snapshot() for _ in range(7)]
    for one, version in zip(taken, ("20261121", "1000001", "999999"), strict=False):
        alice.publish(name, snapshotId=one, version=version)
    counted = [alice.publish(name, snapshotId=one).json["version"] for one in taken[3:6]]
    assert counted == ["1000000", "1000002", "1000003"]
    unused_versions.remove_unused(alice.owner, f"{name}-v1000002")
    assert alice.publish(name, snapshotId=taken[6]).json["version"] == "1000004"


def test_an_account_has_so_many_versions_and_no_more(alice, service, name, monkeypatch):
    monkeypatch.setattr(registry, "VERSIONS_MOST", 2)
    first, other = alice.snapshot(), alice.snapshot()
    for version, one in (("1", first), ("2", other)):
        made = alice.publish(f"{name}.{version}", snapshotId=one, version=version)
        assert made.status_code == 201
    for new in (name, f"{name}.1"):
        answer = alice.publish(new, snapshotId=other)
        assert answer.status_code == 409 and "operator" in answer.json["error"]
    assert alice.publish(f"{name}.1", snapshotId=first).status_code == 200, "nothing new"
    for _ in range(3):
        assert service.publish(name, snapshotId=service.snapshot()).status_code == 201
    alice.delete(f"{name}.1")
    unused_versions.remove_unused(alice.owner, f"{name}.1-v1")
    assert alice.publish(name, snapshotId=other).status_code == 201
    revived = alice.publish(f"{name}.1", snapshotId=first, version="1")
    assert revived.status_code == 409, "a version that was removed is one more again"


def test_publishing_the_same_again_makes_nothing(alice, name):
    body = {"snapshotId": alice.snapshot(), **SERVE}
    first = alice.publish(name, **body)
    again = alice.publish(name, **body)
    assert (first.status_code, again.status_code) == (201, 200) and again.json == first.json
    assert alice.publish(name, version="1", **body).status_code == 200


def test_a_version_never_changes_but_can_become_the_latest_again(alice, name):
    old, new = alice.snapshot(), alice.snapshot()
    alice.publish(name, snapshotId=old, version="1")
    alice.publish(name, snapshotId=new, version="2")
    answer = alice.publish(name, snapshotId=new, version="1")
    assert answer.status_code == 409 and "1" in answer.json["error"]
    assert alice.get(f"{name}-v1").json["snapshotId"] == old and alice.get(
        name).json["version"] == "2"
    assert alice.publish(name, snapshotId=old, version="1").status_code == 200
    assert alice.get(name).json["version"] == "1", "a way back"


def test_racing_publishers_get_a_version_each(alice, name):
    taken = [alice.snapshot() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda one: alice.publish(name, snapshotId=one), taken))
    assert sorted(answer.json["version"] for answer in answers) == ["1", "2", "3", "4", "5", "6"]
    with connection():
        assert Template.select().where((Template.name == name) & Template.latest).count() == 1


def test_a_user_cannot_touch_a_version(edge, alice, name):
    taken = alice.snapshot()
    alice.publish(name, snapshotId=taken)
    for caller in (alice, Caller(edge, alice.owner, edge.service(alice.owner))):
        for version in (f"{name}-v1", f"{name}-v7"):
            assert caller.publish(version, snapshotId=taken).status_code == 403
            assert caller.delete(version).status_code == 403
    assert alice.get(f"{name}-v1").status_code == 200


def test_a_name_taken_back_means_nothing_and_its_versions_stay(alice, name):
    first, second = alice.snapshot(), alice.snapshot()
    alice.publish(name, snapshotId=first)
    alice.publish(name, snapshotId=second)
    deleted = alice.delete(name)
    assert deleted.status_code == 200 and deleted.json["snapshotId"] == second
    assert alice.get(name).status_code == alice.delete(name).status_code == 404
    assert alice.create(templateId=name).status_code == 404
    for version, taken in ((f"{name}-v1", first), (f"{name}-v2", second)):
        assert alice.get(version).json["snapshotId"] == taken
        assert row(alice.create(templateId=version)).snapshot_id == taken
    assert alice.publish(name, snapshotId=first, version="2").status_code == 409
    assert alice.publish(name, snapshotId=first).json["version"] == "3"
    assert alice.get(name).json["version"] == "3"


def test_what_nobody_uses_is_listed_and_removed_by_an_operator(alice, name):
    taken = [alice.snapshot() for _ in range(3)]
    for one in taken:
        alice.publish(name, snapshotId=one)
    made = row(alice.create(templateId=f"{name}-v2"))

    def unused():
        found = unused_versions.list_versions(alice.owner)
        return [use.id for use in found if use.id.startswith(f"{name}-v") and not use.is_used]

    assert unused() == [f"{name}-v1"]
    for used in (f"{name}-v2", f"{name}-v3"):
        with pytest.raises(Conflict):
            unused_versions.remove_unused(alice.owner, used)
    alice.delete(name)
    assert unused() == [f"{name}-v1", f"{name}-v3"], "the sandbox of the second goes on"
    assert unused_versions.remove_unused(alice.owner, f"{name}-v1").snapshot_id == taken[0]
    assert alice.get(f"{name}-v1").status_code == 404
    with connection():
        Sandbox.update(status="stopped").where(Sandbox.id == made.id).execute()
        assert not deletion.templates_of(taken[0]).exists()
    assert unused() == [f"{name}-v2", f"{name}-v3"]
    with pytest.raises(NotFound):
        unused_versions.remove_unused(alice.owner, f"{name}-v1")
    with pytest.raises(InvalidRequest):
        unused_versions.remove_unused(alice.owner, name)


def test_the_catalogue_is_everybodys_and_changed_by_services_only(edge, alice, service, name):
    system = service.publish(name, snapshotId=service.snapshot(), **SERVE)
    assert system.status_code == 201 and system.json["scope"] == "system"
    assert alice.get(name).status_code == 404, "GET shows the caller's own namespace"
    assert row(alice.create(templateId=name)).start_command == "serve"
    assert alice.delete(name).status_code == 404
    mine = alice.publish(name, snapshotId=alice.snapshot())
    assert mine.json["scope"] == "private" and service.get(name).json == system.json
    assert row(alice.create(templateId=name)).start_command is None, "private names come first"
    alice.delete(name)
    assert row(alice.create(templateId=name)).start_command == "serve"
    assert row(alice.create(templateId=f"{name}-v1")).start_command is None, "versions stay"
    assert service.get(name).json == system.json


def test_a_service_may_mend_and_remove_a_version_of_the_catalogue(alice, service, name):
    good, bad, better = (service.snapshot() for _ in range(3))
    service.publish(name, snapshotId=good)
    service.publish(name, snapshotId=bad)
    assert service.publish(f"{name}-v2", snapshotId=better, version="3").status_code == 400
    mended = service.publish(f"{name}-v2", snapshotId=better)
    assert mended.status_code == 200 and service.get(name).json["snapshotId"] == better
    assert service.delete(f"{name}-v2").status_code == 200
    assert service.get(name).json["version"] == "1" and service.get(f"{name}-v2").status_code == 404
    assert service.delete(name).status_code == 200 and service.get(name).status_code == 404


def test_a_snapshot_is_needed_while_any_version_stands_on_it(alice, name):
    def needed():
        with connection():
            return deletion.templates_of(taken).exists()

    taken = alice.snapshot()
    assert not needed()
    alice.publish(name, snapshotId=taken)
    alice.publish(name, snapshotId=alice.snapshot())
    assert needed(), "an older version counts"
    alice.delete(name)
    assert needed(), "also when the name is gone"
    unused_versions.remove_unused(alice.owner, f"{name}-v1")
    assert not needed()
