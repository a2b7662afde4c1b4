"""Apps that a sandbox serves: what serves changes at the end of a run, all at once or not at all,
and what served before is stopped; rows under a worker that the test plays."""
import dataclasses
import socket
from datetime import timedelta

import pytest

from guest.client.agent_client import AgentClient
from models.database import connection, now
from models.deploys import Deploy, DeployRun, Drain, RetiredRuntime
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import RunStep, SandboxStatus
from models.users import User
from nodeworker.deploys import run_steps, start_and_go_live
from nodeworker.wiring import NodeDeps
from services.deploys import app_removal, builders, failed_runs, publishing, runs, version_prefixes
from services.deploys.edges import staging
from services.deploys.projects.manifest import BadProject
from services.deploys.served import fences, replica_keys, runtimes, stop_old_runtimes
from services.deploys.sweeps.takeover import take_over
from services.errors import RateLimited, Unavailable
from services.hosts.nodes import heartbeat
from services.operations.claims import LeaseLost
from services.previews import wake
from tasks.wiring import no_guest
from tests.functional.deploys.conftest import DATABASE, NODE, SERVED, app
from tests.functional.deploys.conftest import prefixes as kept
from tests.rows import operations


def publish(deps, claimed, fence_until=None):
    with connection():
        publishing.publish_served(deps, claimed, fence_until)
    return claimed.runtime_sandbox_id


def prefix_of(claimed):
    return version_prefixes.prefix_of(claimed.app_id, claimed.version, claimed.stored_epoch)


def task_of(sandbox_id):
    with connection():
        return Sandbox.get_by_id(sandbox_id).task


def work(deps, settings, claimed):
    run_steps.run_announced(NodeDeps(settings, None, deps.queue, no_guest), claimed.id)


def test_a_version_asleep_on_a_closed_node_wakes_for_its_database_unless_that_goes_down(
        deps, bring_up):
    asleep = publish(deps, bring_up(DATABASE))
    claimed = bring_up(DATABASE)
    for draining_s, begun in ((60, None), (-1, "wake")):
        with connection():
            Sandbox.update(status=SandboxStatus.HIBERNATED).where(Sandbox.id == asleep).execute()
            Node.update(accepting=False,
                        draining_until=now() + timedelta(seconds=draining_s)).execute()
            DeployRun.update(state="queued", step=RunStep.MOVE).where(
                DeployRun.id == claimed.id).execute()
        work(deps, dataclasses.replace(deps.settings, node_id="n1"), claimed)
        assert task_of(asleep) == begun


def test_what_is_done_for_an_app_counts_as_its_owners(deps, bring_up, ask, take):
    settings = dataclasses.replace(deps.settings, node_id="n1", open_operations=1)
    few = dataclasses.replace(deps, settings=settings)
    asleep = publish(deps, bring_up())
    with connection():
        Sandbox.update(status=SandboxStatus.HIBERNATED).where(Sandbox.id == asleep).execute()
    ask(slug="second")
    under_way = take("second")
    builder = builders.start(few, under_way)
    with connection():
        assert {row.owner_id for row in Operation.select()} == {"alice"}
    with pytest.raises(RateLimited):
        wake.bring_up(few, asleep, 3000)
    ask(slug="third")
    waiting = take("third")
    with connection():
        runs.give_back(waiting, 0)
    work(deps, settings, waiting)
    with connection():
        run = DeployRun.get_by_id(waiting.id)
    assert (run.state, run.attempts) == ("queued", 0) and "under way" in run.operator_error
    builders.forget(few, under_way)
    assert task_of(builder) == "stop"
    assert wake.bring_up(few, asleep, 3000) is wake.Reach.COMING, "a stop does not count"


def test_a_builder_that_has_ended_is_named_and_another_is_made(deps, ask, take):
    ask()
    claimed = take()
    operations.succeed(builders.start(deps, claimed), SandboxStatus.STOPPED)
    with connection():
        runs.give_back(claimed, 0)
        DeployRun.update(attempts=deps.settings.operation_attempts).execute()
    work(deps, dataclasses.replace(deps.settings, node_id="n1"), claimed)
    with connection():
        run = DeployRun.get_by_id(claimed.id)
    assert run.operator_error.startswith("BuilderGone: the builder is stopped")
    assert (run.state, run.builder_sandbox_id) == ("queued", None), "none of its doing"


def store_static(deps, ask, take):
    ask()
    claimed = take()
    with connection():
        prefix = version_prefixes.keep(claimed.app_id, claimed.version, claimed.epoch)
        stored = runs.advance(claimed, RunStep.STAGE, stored_epoch=claimed.epoch)
        publishing.publish_static(deps, stored)
    return prefix


def test_the_builder_serves_the_app_and_the_one_before_is_stopped(deps, bring_up):
    first = publish(deps, bring_up())
    row = app()
    assert (row["live_sandbox_id"], row["live_static"], row["live_version"]) == (first, False, 1)
    with connection():
        made = Sandbox.get_by_id(first)
    assert (made.kind, made.app_id, made.readiness_port) == ("runtime", row["app_id"], 3000)
    assert made.idle_timeout_s == deps.settings.runtime_idle_s
    second = publish(deps, bring_up())
    assert app()["live_sandbox_id"] == second and task_of(first) is None
    assert stop_old_runtimes.stop_due(deps) == [first], "no edge is at work: nothing is in flight"
    assert (task_of(first), task_of(second)) == ("stop", None)
    assert stop_old_runtimes.stop_due(deps) == []


def test_a_run_that_fails_removes_what_it_has_brought_up_and_nothing_else(deps, bring_up):
    serving = bring_up(DATABASE)
    first = publish(deps, serving)
    before = app()
    claimed = bring_up(DATABASE)
    fences.begin(claimed, "sb", 30)
    assert app()["fence_until"] > now()
    with connection():
        failed_runs.fail(deps, claimed, "No.")
    assert app() | {"next_version": 0} == before | {"next_version": 0}
    assert (task_of(first), task_of(claimed.runtime_sandbox_id)) == (None, "stop")
    assert kept() == {prefix_of(serving): False, prefix_of(claimed): True}


def test_a_database_goes_live_under_its_fence_only(deps, bring_up):
    first = bring_up(DATABASE)
    publish(deps, first)
    claimed = bring_up(DATABASE)
    live = runtimes.find_live(deps.settings, claimed)
    assert (live.sandbox_id, live.database) == (first.runtime_sandbox_id, "app.db")
    assert live.prefix == f"{prefix_of(first)}db/"
    before = app()
    over = fences.begin(claimed, "sb", 0.5)
    with pytest.raises(Unavailable):
        publish(deps, claimed, over)
    fences.lift(claimed, "sb", over)
    assert app() | {"next_version": 0} == before | {"next_version": 0}
    until = fences.begin(claimed, "sb", 30)
    fences.lift(claimed, "sb", over)
    assert app()["fence_until"] == until == fences.find_left(claimed), "of another attempt"
    with connection():
        assert Drain.select().where(Drain.sandbox_id == "sb").exists(), "which waits for it"
    second = publish(deps, claimed, until)
    with pytest.raises(LeaseLost):
        publish(deps, claimed, until)
    assert (app()["fence_until"], app()["live_sandbox_id"]) == (None, second)
    assert kept() == {prefix_of(first): True, prefix_of(claimed): False}
    assert version_prefixes.take_due() == [prefix_of(first)], "at once"
    with connection():
        assert RetiredRuntime.get().stop_at <= now() + timedelta(seconds=1)


def test_a_fence_that_is_over_is_forgotten_and_one_that_stands_is_not(deps, bring_up):
    first = publish(deps, bring_up(DATABASE))
    before = app()
    claimed = bring_up(DATABASE)
    until = fences.begin(claimed, first, 30)
    fences.forget_expired()
    assert app()["fence_until"] == until
    with connection():
        Deploy.update(fence_until=now()).execute()
        fences.forget_expired()
        assert not Drain.select().where(Drain.sandbox_id == first).exists()
    assert app() | {"next_version": 0} == before | {"next_version": 0}


def test_a_run_that_serves_by_now_is_not_moved_and_one_before_that_begins_anew(
        deps, bring_up, snapshot):
    heartbeat(dataclasses.replace(NODE, id="n2"))
    first = publish(deps, bring_up(DATABASE))
    claimed = bring_up(DATABASE)
    with connection():
        Snapshot.update(uploaded_to_store=True, image_key="simulated").execute()
        Node.update(accepting=False).where(Node.id == "n1").execute()
        runs.give_back(claimed, 0)
    before = app()
    assert [move.target for move in take_over(deps)] == ["n2"]
    assert app() == before, "what is live is not touched"
    assert (task_of(first), task_of(claimed.runtime_sandbox_id)) == (None, "stop")
    with connection():
        run = DeployRun.get_by_id(claimed.id)
        assert (run.step, run.runtime_sandbox_id) == (RunStep.BUILD, None)
        with pytest.raises(LeaseLost):
            publishing.publish_served(deps, claimed)


def test_who_lost_its_lease_holds_no_requests(deps, bring_up, take):
    claimed = bring_up(DATABASE)
    with connection():
        runs.renew(claimed, -1)
    assert take(worker="peer") is not None
    for attempt in (
            lambda: fences.begin(claimed, "sb", 30),
            lambda: runtimes.begin_prefix(deps.settings, claimed)):
        with pytest.raises(LeaseLost):
            attempt()
    assert app()["fence_until"] is None


def test_an_app_becomes_static_and_served_again(deps, bring_up, ask, take):
    first = publish(deps, bring_up(DATABASE))
    database = list(kept())[0]
    files = store_static(deps, ask, take)
    row = app()
    assert (row["live_static"], row["live_sandbox_id"], row["previous_version"]) == (
        True, None, None)
    assert kept() == {database: True, files: False}
    assert version_prefixes.take_due() == [database]
    assert stop_old_runtimes.stop_due(deps) == [first]
    again = bring_up(DATABASE)
    assert runtimes.find_live(deps.settings, again) is None, "there is no database to go on with"
    publish(deps, again)
    assert staging.list_apps() == [] and app()["previous_version"] is None
    assert kept()[files], "its pages may be asked for a while"
    assert files not in version_prefixes.take_due()


def remove(deps):
    with connection():
        alice = User.get_by_id("alice")
    app_removal.remove(deps, alice, "hello")


def test_a_deleted_app_leaves_no_sandbox(deps, bring_up):
    first = publish(deps, bring_up())
    under_way = bring_up()
    remove(deps)
    assert app() is None and task_of(under_way.runtime_sandbox_id) == "stop"
    assert stop_old_runtimes.stop_due(deps) == [first] and task_of(first) == "stop"


@pytest.mark.slow
def test_an_app_that_leaves_its_guest_no_time_to_answer_has_not_listened(deps, bring_up):
    claimed = bring_up(SERVED | {"ready_by": 0})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        guest = AgentClient("127.0.0.1", silent.getsockname()[1], "token")
        node = NodeDeps(deps.settings, None, deps.queue, lambda sandbox: guest)
        with pytest.raises(BadProject, match="Nothing accepted connections on port 3000"):
            start_and_go_live.go_live(node, claimed)


def is_stopped(sandbox_id):
    operations.succeed(sandbox_id, SandboxStatus.STOPPED)


def is_not_stopped_in_time(sandbox_id):
    with connection():
        Operation.update(created_at=now() - timedelta(seconds=61)).execute()


@pytest.mark.parametrize("ends", [is_stopped, is_not_stopped_in_time])
def test_what_a_deleted_app_has_stored_goes_once_its_guest_stores_no_more(deps, bring_up, ends):
    serving = bring_up(DATABASE)
    first = publish(deps, serving)
    remove(deps)
    assert app() is None and kept() == {prefix_of(serving): True}
    replica_keys.revoke_ended()
    assert replica_keys.has_key(first), "it is not stopped yet"
    assert version_prefixes.take_due() == []
    assert stop_old_runtimes.stop_due(deps) == [first]
    replica_keys.revoke_ended()
    assert replica_keys.has_key(first), "for its last rows"
    ends(first)
    assert version_prefixes.take_due() == []
    replica_keys.revoke_ended()
    assert not replica_keys.has_key(first)
    assert version_prefixes.take_due() == [prefix_of(serving)]
