"""What is served changes at the end of a run, all at once, or not at all: rows under a worker that
the test plays."""
import concurrent.futures
import dataclasses
import json

import pytest

from models.database import connection, database, now
from models.deploys import Deploy, DeployPrefix, DeployRun
from models.events import Event
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import RunStep, SandboxStatus, SnapshotState
from models.users import User
from nodeworker.deploys import run_steps
from nodeworker.wiring import NodeDeps
from services.deploys import (
    app_removal,
    builders,
    earlier_versions,
    failed_runs,
    publishing,
    runs,
    version_prefixes,
)
from services.deploys.apps import find, listing
from services.deploys.edges import staging
from services.deploys.sweeps import overdue
from services.errors import Conflict, Forbidden, NotFound
from services.operations.claims import LeaseLost
from tasks.wiring import no_guest
from tests.functional.deploys.conftest import app
from tests.functional.deploys.conftest import prefixes as kept
from tests.rows import operations


def events():
    with connection():
        return [(row.type, json.loads(row.body)["data"]) for row in Event.select().where(
            Event.type.startswith("deploy.")).order_by(Event.occurred_at)]


def store(claimed):
    """As the step does that stores files."""
    with connection():
        prefix = version_prefixes.keep(claimed.app_id, claimed.version, claimed.epoch)
        return prefix, runs.advance(claimed, RunStep.STAGE, stored_epoch=claimed.epoch)


def publish(deps, ask, take, **fields):
    """A whole deploy; returns the prefix of its files."""
    ask(**fields)
    prefix, claimed = store(take())
    with connection():
        publishing.publish_static(deps, claimed)
    return prefix


def test_of_many_first_deploys_of_a_slug_at_once_one_is_taken_on(deps, ask):
    def attempt(_):
        try:
            return ask().version
        except Conflict as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(attempt, range(16)))
    assert found.count(1) == 1
    assert set(found) == {1, "The slug hello exists already, or a deploy of it is under way."}
    assert app()["status"] == "building" and app()["live_version"] is None
    assert len(deps.queue.sent) >= 1


def test_a_slug_of_another_account_is_taken(deps, ask, take):
    publish(deps, ask, take)
    with connection():
        Snapshot.update(owner="mallory").execute()
        Sandbox.update(owner="mallory").where(Sandbox.kind == "api").execute()
    with pytest.raises(Conflict, match="exists already"):
        ask(owner="mallory")


@pytest.mark.parametrize(("change", "error"), [
    ({"state": SnapshotState.PENDING}, Conflict), ({"state": SnapshotState.DELETED}, NotFound),
    ({"owner": "mallory"}, Forbidden),
])
def test_a_snapshot_that_cannot_be_deployed_reserves_nothing(ask, change, error):
    with connection():
        Snapshot.update(**change).execute()
    with pytest.raises(error):
        ask()
    assert app() is None


def test_a_version_goes_live_with_its_event_and_the_one_before_is_collected_later(deps, ask, take):
    first = publish(deps, ask, take, intent=" ïntent\t1 ")
    before = app()
    assert (before["status"], before["live_version"], before["live_static"]) == ("live", 1, True)
    assert events() == [("deploy.succeeded", {
        "deployIntentId": " ïntent\t1 ", "slug": "hello", "runId": "run"})]
    second = publish(deps, ask, take)
    after = app()
    assert (after["live_version"], after["previous_version"]) == (2, 1)
    assert after["app_id"] == before["app_id"]
    wait_s = (after["collect_previous_at"] - now()).total_seconds()
    assert 60 < wait_s <= deps.settings.static_collect_s
    assert kept() == {first: True, second: False}
    assert version_prefixes.take_due() == [], "its time has not come"
    assert [(served.live, served.previous) for served in staging.list_apps()] == [(second, first)]
    with connection():
        past = now()
        Deploy.update(collect_previous_at=past).execute()
        DeployPrefix.update(due_at=past).where(DeployPrefix.due_at.is_null(False)).execute()
    earlier_versions.end_due()
    assert staging.list_apps()[0].previous is None
    assert [version_prefixes.take_due() for _ in range(2)] == [[first], []], "in one sweep's hands"
    version_prefixes.removed(first)
    assert kept() == {second: False}


def test_a_failed_run_leaves_the_live_row_as_it_was(deps, ask, take):
    first = publish(deps, ask, take)
    before = app()
    ask(intent="i2")
    prefix, claimed = store(take())
    with connection():
        failed_runs.fail(deps, claimed, "The build failed.")
    after = app()
    # only the number that the next run gets has moved, when this one was taken on
    assert after | {"next_version": 0} == before | {"next_version": 0}
    assert kept() == {first: False, prefix: True}
    assert events()[-1] == ("deploy.failed", {
        "deployIntentId": "i2", "slug": "hello", "runId": "run", "error": "The build failed."})
    with pytest.raises(LeaseLost):
        publishing.publish_static(deps, claimed)
    assert len(events()) == 2, "one end each"


def test_a_first_deploy_that_fails_keeps_the_app_for_its_owner(deps, ask, take):
    first = ask()
    with connection():
        failed_runs.fail(deps, take(), "No.")
    assert app()["status"] == "failed"
    assert (ask().status, app()["status"], app()["app_id"]) == (*2 * ["building"], first.app_id)


def test_who_looks_while_a_deploy_ends_sees_it_before_or_after(deps, ask):
    ask()

    def end_and_reopen():
        for error in [None, "no"] * 300:
            with connection(), database.atomic():
                DeployRun.update(error=error).execute()
                Deploy.update(status="failed" if error else "building").execute()

    alice, seen = find.get_owner("hello"), set()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        work = pool.submit(end_and_reopen)
        while not work.done():
            seen |= {(view.status, view.error) for view in (
                find.get_view(deps, None, "hello"),
                *listing.list_page(deps, alice, limit=1, offset=0).items)}
    work.result()
    assert seen == {("building", None), ("failed", "no")}


def test_who_lost_its_lease_publishes_nothing(deps, ask, take):
    ask()
    with connection():
        late = take(lease_s=-1)
        taken_over = take(worker="peer")
        assert taken_over.epoch == late.epoch + 1
        with pytest.raises(LeaseLost):
            store(late)
        with pytest.raises(LeaseLost):
            publishing.publish_static(deps, late)
    prefix, claimed = store(taken_over)
    assert f"-{claimed.stored_epoch}/" in prefix
    with connection():
        publishing.publish_static(deps, claimed)
    assert app()["live_epoch"] == claimed.stored_epoch
    assert [kind for kind, _ in events()] == ["deploy.succeeded"]


def test_a_run_is_claimed_once_and_on_its_node_only(ask, take):
    ask()
    assert take() is not None and take() is None
    with connection():
        run = DeployRun.get()
        assert runs.claim(run.id, "n2", "w", 1.0) is None


def test_of_one_owners_runs_a_node_works_on_its_share_only(ask, take):
    ask(slug="first")
    ask(slug="second")
    assert take("first") is not None
    with connection():
        second = DeployRun.get(DeployRun.slug == "second")
        assert runs.claim(second.id, "n1", "w", 10.0, share=1) is None
        waits_s = (DeployRun.get_by_id(second.id).announce_at - now()).total_seconds()
        assert waits_s < 2
        assert runs.claim(second.id, "n1", "w", 10.0, share=2) is not None


def test_the_builder_is_known_by_the_run_that_made_it_and_goes_with_its_end(deps, ask, take):
    ask()
    claimed = take()
    builder = builders.start(deps, claimed)
    assert builders.status_of(builder) == (SandboxStatus.PROVISIONING, None)
    with connection():
        row = Sandbox.get_by_id(builder)
        assert (row.owner_id, row.kind) == ("svc-deploys", "builder")
        assert DeployRun.get().builder_sandbox_id == builder
        failed_runs.fail(deps, claimed, "No.")
        assert Sandbox.get_by_id(builder).task == "stop"


def test_no_builder_is_made_under_a_lost_lease(deps, ask, take):
    ask()
    late = take(lease_s=-1)
    assert take(worker="peer") is not None
    with pytest.raises(LeaseLost):
        builders.start(deps, late)
    with connection():
        assert not Sandbox.select().where(Sandbox.kind == "builder").exists()


def test_a_deleted_app_serves_nothing_and_its_open_run_fails(deps, ask, take):
    earlier, first = publish(deps, ask, take), publish(deps, ask, take)
    ask()
    prefix, claimed = store(take())
    with connection():
        alice, mallory = User.get_by_id("alice"), User.get_by_id("mallory")
    with pytest.raises(Forbidden):
        app_removal.remove(deps, mallory, "hello")
    app_removal.remove(deps, alice, "hello")
    assert app() is None and staging.list_apps() == []
    assert kept() == {earlier: True, first: True, prefix: True}
    assert set(version_prefixes.take_due()) == {earlier, first, prefix}, "version N-1 at once, too"
    assert events()[-1][1]["error"] == "The app was deleted."
    with pytest.raises(LeaseLost):
        publishing.publish_static(deps, claimed)
    with pytest.raises(NotFound):
        app_removal.remove(deps, alice, "hello")
    assert ask().app_id != claimed.app_id, "the name is free again"


def test_a_run_past_its_deadline_that_nobody_works_on_is_given_up(deps, ask, take):
    ask()
    claimed = take()
    with connection():
        DeployRun.update(deadline_at=now()).execute()
    assert overdue.give_up(deps) == [], "its worker ends it itself"
    with connection():
        DeployRun.update(lease_until=now()).execute()
    assert overdue.give_up(deps) == ["hello"] and overdue.give_up(deps) == []
    assert events()[-1][0] == "deploy.failed"
    with pytest.raises(LeaseLost):
        runs.renew(claimed, 1.0)


def test_a_build_that_never_ends_is_ended_by_its_worker(deps, ask, take):
    """Which looks at it now and then, and which beat leaves it to."""
    publish(deps, ask, take)
    before = app()
    ask()
    claimed = take()
    builder = builders.start(deps, claimed)
    operations.succeed(builder, SandboxStatus.RUNNING)
    with connection():
        runs.give_back(claimed, 0)
        DeployRun.update(deadline_at=now()).where(DeployRun.id == claimed.id).execute()
    node = NodeDeps(dataclasses.replace(deps.settings, node_id="n1"), None, deps.queue, no_guest)
    run_steps.run_announced(node, claimed.id)
    assert events()[1:] == [("deploy.failed", {
        "slug": "hello", "runId": "run", "deployIntentId": None,
        "error": "The deploy did not finish in time."})]
    assert app() == before | {"next_version": 3}
    with connection():
        ended = DeployRun.get_by_id(claimed.id)
        assert (ended.state, ended.claimed_by, ended.announce_at) == ("failed", None, None)
        assert Sandbox.get_by_id(builder).task == "stop"
    assert overdue.give_up(deps) == []
    run_steps.run_announced(node, claimed.id)
    assert len(events()) == 2


def test_a_run_waits_for_every_edge_that_is_at_work(deps, ask, take):
    ask()
    prefix, claimed = store(take())
    assert not staging.is_everywhere(claimed), "there is none"
    staging.caught_up("a", now())
    staging.caught_up("b", now())
    staging.staged("a", prefix)
    assert not staging.is_everywhere(claimed)
    staging.staged("b", prefix)
    staging.staged("b", prefix)
    assert staging.is_everywhere(claimed)
    assert staging.list_coming() == [staging.Version("hello", "alice", prefix)]
