"""Which file of a project is the app's database: the one that has its rows goes on being it, unless
`svc.json` names another."""
import dataclasses
import json

import pytest

from guest.client.errors import AgentRefused, AgentUnreachable
from guest.client.results import ExecResult
from models.database import connection
from models.deploys import Deploy, DeployRun
from models.states import SandboxStatus
from nodeworker.deploys import run_steps
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.wiring import NodeDeps
from services.deploys import builders, publishing, runs, version_prefixes
from services.deploys.served import fences
from tests.functional.deploys.conftest import DATABASE, app, prefixes
from tests.rows import operations


class Built:
    """The agent of a builder whose build has ended, and that says nothing after that. The project
    has a start script and these SQLite files."""

    def __init__(self, databases):
        self._found = {"directories": [], "databases": databases, "functions": 0, "tooMany": False}

    def exec(self, argv, **_):
        is_look = argv[0] == "python3"
        return ExecResult(json.dumps(self._found).encode() if is_look else b"0\n", b"", 0)

    def read_file(self, path, *_):
        if path.endswith("svc.json"):
            raise AgentRefused("not_found", "there is none")
        return b'{"scripts": {"start": "serve"}}'

    def write_file(self, *_, **__):
        raise AgentUnreachable("it is gone")


def publish(deps, claimed, fence_until=None):
    with connection():
        publishing.publish_served(deps, claimed, fence_until)


@pytest.fixture
def build(deps, ask, take, tmp_path):
    """A run whose build has made these SQLite files and that went on; returns its row."""
    def end(databases, restores=None):
        ask()
        claimed = take()
        operations.succeed(builders.start(deps, claimed), SandboxStatus.RUNNING)
        with connection():
            DeployRun.update(restores_version=restores).where(DeployRun.id == claimed.id).execute()
            runs.give_back(claimed, 0)
        settings = dataclasses.replace(deps.settings, node_id="n1", node_dir=tmp_path)
        run_steps.run_announced(NodeDeps(settings, SimulatedDriver(settings), deps.queue,
                                         lambda sandbox: Built(databases)), claimed.id)
        with connection():
            return DeployRun.get_by_id(claimed.id)
    return end


def test_a_database_keeps_its_name_whatever_else_there_is(deps, bring_up, build):
    publish(deps, bring_up(DATABASE))
    run = build([".cache/b.sqlite", "app.db"])
    assert run.manifest["database"] == "app.db" and "it is gone" in run.operator_error


def test_a_project_without_a_file_keeps_the_one_that_is_live(deps, bring_up, build):
    serving = bring_up(DATABASE)
    publish(deps, serving)
    assert build([]).manifest["database"] == "app.db"
    kept = version_prefixes.prefix_of(serving.app_id, serving.version, serving.stored_epoch)
    assert prefixes() == {kept: False}


def test_an_app_that_has_none_gets_none(deps, bring_up, build):
    publish(deps, bring_up())
    assert build([]).manifest["database"] is None


def test_an_app_with_a_database_does_not_go_on_with_another(deps, bring_up, build):
    publish(deps, bring_up(DATABASE))
    before = app()
    run = build([".cache/b.sqlite"])
    assert run.state == "failed" and "`database` in svc.json" in run.error
    assert app() | {"next_version": 0} == before | {"next_version": 0}


def test_what_is_brought_back_finds_its_database_where_it_had_it(deps, bring_up, build):
    publish(deps, bring_up(DATABASE))
    renamed = bring_up(DATABASE | {"database": "new.db"})
    publish(deps, renamed, fences.begin(renamed, "sb", 30))
    assert build([".cache/b.sqlite", "app.db"], restores=1).manifest["database"] == "app.db"


@pytest.mark.parametrize("is_static", [False, True])
def test_so_does_one_that_is_brought_back_after_it_was_given_up(
        deps, bring_up, build, is_static):
    publish(deps, bring_up(DATABASE))
    kept = bring_up(DATABASE)
    publish(deps, kept, fences.begin(kept, "sb", 30))
    publish(deps, bring_up())
    if is_static:
        with connection():
            Deploy.update(live_sandbox_id=None).execute()
    assert build([], restores=2).manifest["database"] == "app.db"
