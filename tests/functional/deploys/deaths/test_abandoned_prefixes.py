"""What a worker stores for a run that is not its own any more, as once the app was deleted, is
removed, whatever ends the storing: rows and a worker of this process."""
import dataclasses

import pytest

from guest.client.errors import AgentUnreachable
from models.database import connection
from models.deploys import DeployPrefix
from models.states import RunStep, SandboxStatus
from models.users import User
from nodeworker.deploys import run_steps, storing
from nodeworker.wiring import NodeDeps
from objects.store import StoreUnavailable
from services.deploys import app_removal, builders, runs, version_prefixes
from services.deploys.projects.manifest import BadProject
from services.operations.claims import LeaseLost
from tests.functional.deploys.conftest import prefixes as kept
from tests.rows import operations

BUILT = {"output": "dist", "start": None, "database": None, "functions": 0}


class Guest:
    """The agent of a builder whose output nobody reads."""

    def archive(self, *_, **__):
        return iter(())


@pytest.fixture
def storing_run(deps, ask, take):
    """The id of a run that is to store its files, and works on it."""
    ask()
    claimed = take()
    operations.succeed(builders.start(deps, claimed), SandboxStatus.RUNNING)
    with connection():
        runs.give_back(runs.advance(claimed, RunStep.STORE, manifest=BUILT), 0)
    return claimed.id


@pytest.fixture
def work(deps):
    """Works on a run as a node does."""
    node = NodeDeps(dataclasses.replace(deps.settings, node_id="n1"), None, deps.queue,
                    lambda sandbox: Guest())
    return lambda run_id: run_steps.run_announced(node, run_id)


def delete_app(deps):
    with connection():
        alice = User.get_by_id("alice")
    app_removal.remove(deps, alice, "hello")


def remove_what_is_due():
    """As the tick does of an object store that holds nothing yet; returns what is gone."""
    due = version_prefixes.take_due()
    for prefix in due:
        version_prefixes.removed(prefix)
    return due


@pytest.mark.parametrize("error", [
    None, AgentUnreachable("gone"), BadProject("No."), StoreUnavailable("away"), ValueError()],
    ids=lambda error: type(error).__name__)
def test_what_is_stored_after_the_app_was_deleted_goes_too(deps, storing_run, work, monkeypatch,
                                                           error):
    written = []

    def store(objects, prefix, tar, **limits):
        delete_app(deps)
        assert remove_what_is_due() == [prefix] and kept() == {}
        written.append(prefix)
        if error is not None:
            raise error

    monkeypatch.setattr(storing, "store", store)
    work(storing_run)
    assert version_prefixes.take_due() == written != []


def test_nothing_is_begun_for_an_app_that_was_deleted(deps, ask, take):
    ask()
    claimed = take()
    delete_app(deps)
    with pytest.raises(LeaseLost):
        version_prefixes.begin(claimed)
    assert kept() == {}


def test_what_fails_while_the_run_is_its_own_waits_for_its_end(storing_run, work, monkeypatch):
    def store(objects, prefix, tar, **limits):
        raise StoreUnavailable("away")

    monkeypatch.setattr(storing, "store", store)
    work(storing_run)
    assert list(kept().values()) == [False]


def test_what_was_stored_under_a_lost_lease_is_removed_even_again(ask, take):
    ask()
    late = take(lease_s=-1)
    prefix = version_prefixes.begin(late)
    assert take(worker="peer") is not None
    with connection():
        version_prefixes.collect(DeployPrefix.prefix == prefix)
    assert remove_what_is_due() == [prefix]
    version_prefixes.discard_if_lost(late)
    assert version_prefixes.take_due() == [prefix]


def test_what_another_worker_goes_on_with_is_kept(ask, take):
    """The answer to what it has written was lost, and then the lease."""
    ask()
    late = take(lease_s=-1)
    prefix = version_prefixes.begin(late)
    with connection():
        runs.advance(late, RunStep.STAGE, stored_epoch=late.epoch)
    assert take(worker="peer").stored_epoch == late.epoch
    version_prefixes.discard_if_lost(late)
    assert kept() == {prefix: False}
