"""An earlier version comes back: at once where its files still are, else built again; no data."""
import pytest

from models.database import connection, now
from models.deploys import Deploy, DeployLog, DeployPrefix, DeployRun
from models.snapshots import Snapshot
from models.states import SnapshotState
from models.users import User
from services.deploys import (
    app_removal,
    earlier_versions,
    failed_runs,
    logs,
    publishing,
    version_prefixes,
)
from services.deploys.apps import find
from services.deploys.begin_run import RollbackRequest
from services.deploys.edges import staging
from services.deploys.rollback import roll_back
from services.errors import Conflict, Forbidden, NotFound
from tests.functional.deploys.conftest import app
from tests.functional.deploys.conftest import prefixes as kept
from tests.functional.deploys.test_runs import events, publish, store


@pytest.fixture
def back(deps, snapshot):
    """Rolls the app hello back."""
    def begin(version=None, owner="alice", intent=None):
        with connection():
            user = User.get_by_id(owner)
        return roll_back(deps, user, RollbackRequest("hello", "back", version, intent))
    return begin


@pytest.fixture
def versions(deps, ask, take):
    """Publishes so many versions; returns their prefixes. One edge has the files of each."""
    def go_live(number):
        found = []
        for _ in range(number):
            found.append(publish(deps, ask, take))
            staging.caught_up("edge", now())
            staging.staged("edge", found[-1])
        return found
    return go_live


def run_of(version):
    with connection():
        return DeployRun.get(DeployRun.version == version)


def pass_collection():
    """As if the time of version N-1 were over."""
    with connection():
        Deploy.update(collect_previous_at=now()).execute()
    earlier_versions.end_due()


def served():
    (each,) = staging.list_apps()
    return each.live, each.previous


def test_a_version_whose_files_are_still_served_is_back_at_once(deps, versions, back):
    first, second = versions(2)
    view = back(intent="oh no")
    assert (view.version, view.serving_version, view.restores_version) == (3, 1, 1)
    assert served() == (first, second)
    assert kept() == {first: False, second: True}, "the one that was given up goes in its time"
    assert events()[-1] == ("deploy.succeeded", {
        "deployIntentId": "oh no", "slug": "hello", "runId": "back"})
    assert find.wait_for(deps, view, 0) == view
    with connection():
        wait_s = (app()["collect_previous_at"] - now()).total_seconds()
    assert 60 < wait_s <= deps.settings.static_collect_s
    with pytest.raises(Conflict, match="no earlier version"):
        back()
    assert back(2).serving_version == 2, "and forth again, if that is said"
    assert served() == (second, first)


def test_the_next_deploy_after_it_is_a_version_as_any(deps, versions, back, ask, take):
    first, _ = versions(2)
    back()
    fourth = publish(deps, ask, take)
    assert served() == (fourth, first) and app()["live_version"] == 4
    staging.staged("edge", fourth)
    assert back().serving_version == 1, "what was served before, not what had been given up"


def test_a_version_whose_files_are_gone_is_built_again(deps, versions, back, take):
    versions(3)
    pass_collection()
    view = back()
    assert (view.version, view.serving_version, view.restores_version) == (4, 3, 2)
    run = run_of(4)
    assert (run.state, run.step, run.snapshot_id) == ("queued", "build", "snap1")
    assert any(job == "node.deploy.run" and payload == {"run": run.id}
               for _, job, payload in deps.queue.sent)
    with pytest.raises(Conflict, match="under way"):
        back()
    before = app()
    with connection():
        failed_runs.fail(deps, take(), "The build failed.")
    assert app() == before, "a rollback that fails changes nothing"


@pytest.mark.parametrize("lost", ["an edge", "the store"])
def test_it_is_not_at_hand_if_an_edge_lacks_it_or_the_store_has_begun_to_remove_it(
        versions, back, lost):
    first, _ = versions(2)
    if lost == "an edge":
        staging.caught_up("another edge", now())
    else:
        with connection():
            DeployPrefix.update(due_at=now()).where(DeployPrefix.prefix == first).execute()
        assert version_prefixes.take_due() == [first]
    assert back().serving_version == 2 and run_of(3).state == "queued"


def test_asked_for_again_it_goes_further_back(deps, versions, back, take):
    versions(3)
    pass_collection()
    for version, wanted in ((4, 2), (5, 1)):
        assert back().restores_version == wanted
        store_and_publish(deps, take)
        pass_collection()
        assert app()["live_version"] == version
    with pytest.raises(Conflict, match="no earlier version"):
        back()
    assert back(3).restores_version == 3


def store_and_publish(deps, take):
    _, claimed = store(take())
    with connection():
        publishing.publish_static(deps, claimed)


def test_what_cannot_come_back(deps, versions, back, ask, take):
    versions(2)
    with pytest.raises(Conflict, match="Version 2 is what hello serves"):
        back(2)
    with pytest.raises(NotFound, match="never served a version 9"):
        back(9)
    with pytest.raises(Forbidden):
        back(owner="mallory")
    pass_collection()
    with connection():
        Snapshot.update(state=SnapshotState.DELETED).execute()
    with pytest.raises(Conflict, match="its snapshot snap1 is gone"):
        back()
    with connection():
        alice = User.get_by_id("alice")
    app_removal.remove(deps, alice, "hello")
    with pytest.raises(NotFound):
        back()


def test_nothing_was_ever_served(deps, ask, take, back):
    ask()
    with connection():
        failed_runs.fail(deps, take(), "No.")
    with pytest.raises(Conflict, match="No version of hello is served"):
        back()


def test_a_version_without_a_database_does_not_come_back_over_one_that_has(versions, back):
    versions(2)
    pass_collection()
    with connection():
        DeployRun.update(manifest={"database": "kept.db"}).where(DeployRun.version == 2).execute()
    with pytest.raises(Conflict, match="the data of hello would be lost"):
        back()
    with connection():
        DeployRun.update(manifest={"database": "kept.db"}).execute()
    assert back().restores_version == 1


def test_a_log_is_kept_until_the_next_run_begins_or_the_app_is_deleted(deps, ask, versions, back):
    def kept_logs():
        logs.forget_unreadable()
        with connection():
            return {row.run: row.content for row in DeployLog.select()}

    first = ask(slug="other").version
    versions(1)
    with connection():
        other = DeployRun.get((DeployRun.slug == "other") & (DeployRun.version == first)).id
        built = DeployRun.get(DeployRun.slug == "hello").id
    for run in (other, built):
        logs.add(run, 0, b"built")
    versions(1)
    assert kept_logs() == {other: "built"}
    with connection():
        logs.add(find.last_run(app()["app_id"]).id, 0, b"built again")
    assert len(kept_logs()) == 2, "of a run that has ended, as long as it is the last"
    back()
    assert kept_logs() == {other: "built"}
    with connection():
        alice = User.get_by_id("alice")
    app_removal.remove(deps, alice, "other")
    logs.add(other, 5, b"and more, by a worker that had not heard of it")
    assert kept_logs() == {}


def test_who_waits_for_a_deploy_is_told_of_that_one(deps, ask, take):
    begun = ask(intent="mine")
    with connection():
        failed_runs.fail(deps, take(), "No.")
    ask(intent="next")
    ended = find.wait_for(deps, begun, 0)
    assert (ended.version, ended.deploy_intent_id, ended.error) == (1, "mine", "No.")
