"""Whose a sandbox is and what it is: kind, session, project, app, repository, agent server; and
what forks get."""
import itertools

import pytest

from models.database import connection
from models.sandboxes import AgentServer, Sandbox
from models.snapshots import Snapshot
from models.states import SandboxStatus, SnapshotState
from services.operations import claims
from services.sandboxes.freed_when_stopped import end_snapshot
from services.sandboxes.outcomes import Outcome, finish
from services.snapshots import deletion

SANDBOXES = "/v1/sandboxes"
BOOTSTRAP = {
    "callbackUrl": "https://dashboard.example/hook", "callbackToken": "hunter2",
    "model": {"effort": 3}
}


@pytest.fixture
def owner(edge):
    return edge.newcomer()


@pytest.fixture
def callers(edge, owner):
    """Headers of the same owner by every road."""
    return {"key": edge.key(owner), "token": edge.jwt(owner), "service": edge.service(owner)}


@pytest.fixture
def post(edge, callers):
    def send(path="", by="key", **body):
        return edge.api.post(f"{SANDBOXES}{path}", json=body, headers=callers[by])

    return send


def row(answer):
    assert answer.status_code == 201, answer.text
    with connection():
        return Sandbox.get_by_id(answer.json["id"])


def server_of(answer):
    """The agent server kept for the new sandbox: what starts it, and its bootstrap."""
    assert answer.status_code == 201, answer.text
    with connection():
        kept = AgentServer.get_or_none(AgentServer.sandbox_id == answer.json["id"])
    return None if kept is None else (kept.source, kept.bootstrap)


def settle(answer, status=SandboxStatus.RUNNING):
    """Pretend that the node has done its part."""
    with connection():
        Sandbox.update(status=status, task=None).where(Sandbox.id == answer.json["id"]).execute()
    return answer.json["id"]


def captured(answer, owner):
    """A ready snapshot of a new sandbox."""
    source = settle(answer)
    with connection():
        Snapshot.create(id=f"snap-{source}", owner=owner.id, node_id="n1", source_sandbox_id=source,
                        vcpus=1, mem_mb=1024, cwd="/home/user", state=SnapshotState.READY,
                        env=Sandbox.get_by_id(source).env)
    return f"snap-{source}"


@pytest.mark.parametrize(("by", "kind"), [("key", "api"), ("token", "app"), ("service", "app")])
def test_the_kind_says_what_made_it(edge, callers, owner, post, by, kind):
    made = post(by=by)
    fork = post("/fork", by=by, snapshotId=captured(post(by="key" if by != "key" else "token"),
                                                    owner))
    settle(made)
    live = post(f"/{made.json['id']}/fork", by=by)
    listed = {
        entry["id"]: entry
        for entry in edge.api.get(SANDBOXES, headers=callers[by]).json["sandboxes"]
    }
    assert {listed[answer.json["id"]]["kind"] for answer in (made, fork, live)} == {kind}
    raw = listed[made.json["id"]]
    assert (raw["slug"], raw["project"], raw["projectId"], raw["appId"]) == (None, None, None, None)


def test_a_fork_says_itself_whose_it_is(edge, callers, owner, post):
    mine = {"sessionId": "s", "projectId": "p", "projectSlug": "slug", "appId": "a"}
    first = post("/fork", by="token", snapshotId=captured(post(by="token"), owner), **mine)
    settle(first)
    made = row(first)
    assert (made.session_id, made.project_id, made.project_slug, made.app_id) == (
        "s",
        "p",
        "slug",
        "a",
    )
    second = post(f"/{made.id}/fork", by="token")
    listed = {
        entry["id"]: entry
        for entry in edge.api.get(SANDBOXES, headers=callers["key"]).json["sandboxes"]
    }
    shown = [(listed[answer.json["id"]]["project"], listed[answer.json["id"]]["projectId"],
              listed[answer.json["id"]]["appId"]) for answer in (first, second)]
    assert shown == [("slug", "p", "a"), (None, None, None)] and row(second).session_id is None


def test_a_fork_is_otherwise_what_its_source_is(owner, post):
    source = post(preferredModel="m1", timeout=1234, gitRepositoryUrl="git@git.example:a/b",
                  gitRef="main", env={"A": "1", "B": "1"}, ports=[3000])
    taken = captured(source, owner)
    for path, more in (("/fork", {"snapshotId": taken}), (f"/{source.json['id']}/fork", {})):
        fork = row(post(path, **more))
        assert (fork.preferred_model, fork.idle_timeout_s) == ("m1", 1234)
        assert (fork.git_repository_url, fork.git_ref) == ("git@git.example:a/b", "main")
        assert fork.env == {"A": "1", "B": "1"}
        settle(source)
    other = post("/fork", snapshotId=taken, preferredModel="m2")
    assert other.json["preferredModel"] == row(
        other).preferred_model == "m2" and other.json["portMap"] == {}
    assert row(post("/fork", snapshotId=taken,
                    preferredModel="")).preferred_model == "", "none, if it says so"


@pytest.mark.parametrize(("by", "body", "skipped"), [
    ("key", {}, True),
    ("key", {"agentServerSource": "x"}, False),
    ("key", {"skipAppProcesses": False}, False),
    ("key", {"agentServerSource": "x", "skipAppProcesses": True}, True),
    ("token", {}, False),
    ("service", {}, False),
    ("token", {"skipAppProcesses": True}, True),
    ("token", {"agentServerSource": "x"}, False),
])
def test_app_processes_are_skipped_for_keys_that_name_no_agent_server(post, by, body, skipped):
    assert row(post(by=by, **body)).skip_app_processes is skipped


def test_a_raw_sandbox_keeps_nothing_of_an_agent_server(post):
    assert server_of(post(agentBootstrap=BOOTSTRAP)) is None
    assert server_of(post(agentServerSource="x", agentBootstrap=BOOTSTRAP,
                          skipAppProcesses=True)) is None
    assert server_of(post(by="token")) is None, "nothing was given"


def test_an_agent_servers_token_is_kept_until_the_sandbox_stops_and_never_shown(
        edge, callers, post):
    made = post(agentServerSource="serve", agentBootstrap=BOOTSTRAP)
    assert server_of(made) == ("serve", BOOTSTRAP)
    shown = edge.api.get(f"{SANDBOXES}/{made.json['id']}", headers=callers["key"]).text + made.text
    assert "hunter2" not in shown and "dashboard.example" not in shown
    assert server_of(post(by="token", agentBootstrap=BOOTSTRAP)) == (
        None, BOOTSTRAP,
    ), "its server is in its template"
    with connection():
        claimed = claims.claim(made.json["id"], 1, "test", 60)
        finish(claimed, Outcome(False, SandboxStatus.STOPPED, error="no"))
    assert server_of(made) is None, "nobody needs it any more"


def test_what_starts_an_agent_server_is_kept_for_forks_of_its_snapshots(owner, post):
    made = post(agentServerSource="serve", agentBootstrap=BOOTSTRAP)
    taken = captured(made, owner)
    with connection():
        Sandbox.update(task="boot").where(Sandbox.id == made.json["id"]).execute()
        finish(claims.claim(made.json["id"], 1, "test", 60),
               Outcome(False, SandboxStatus.STOPPED, error="no"))
    assert server_of(made) == ("serve", None), "without whom it reported to"
    fork = post("/fork", snapshotId=taken)
    assert server_of(fork) == ("serve", None)
    with connection():
        end_snapshot(taken, lambda _: None)
    assert server_of(made) == ("serve", None), "it may still be forked"
    with connection():
        Snapshot.update(state=SnapshotState.DELETING).where(Snapshot.id == taken).execute()
        end_snapshot(taken, deletion.deleted)
        end_snapshot("never-was", deletion.deleted)
        assert Snapshot.get_by_id(taken).state == SnapshotState.DELETED
    assert server_of(made) is None and server_of(fork) == ("serve", None)


def test_a_fork_runs_the_same_server_and_reports_to_nobody(owner, post):
    source = post(agentServerSource="serve", agentBootstrap=BOOTSTRAP)
    taken = captured(source, owner)
    for path, more in (("/fork", {"snapshotId": taken}), (f"/{source.json['id']}/fork", {})):
        fork = post(path, **more)
        assert server_of(fork) == ("serve", None) and row(fork).skip_app_processes is False
        settle(source)
        raw = post(path, skipAppProcesses=True, **more)
        assert server_of(raw) is None and row(raw).skip_app_processes is True
        settle(source)


def test_a_fork_of_a_raw_sandbox_is_raw(owner, post):
    taken = captured(post(), owner)
    for by in ("key", "token"):
        assert row(post("/fork", by=by, snapshotId=taken)).skip_app_processes is True
        assert row(post("/fork", by=by, snapshotId=taken,
                        skipAppProcesses=True)).skip_app_processes is True
    assert server_of(post("/fork", snapshotId=taken,
                          skipAppProcesses=False)) is None, "there is nothing to start"


@pytest.mark.parametrize(("by", "default"), [("token", False), ("key", True)])
def test_a_default_that_is_spelled_out_is_a_replay_and_the_opposite_is_not(post, by, default):
    first = post(by=by, idempotencyKey="k")
    assert post(by=by, idempotencyKey="k", skipAppProcesses=default).json == first.json
    assert post(by=by, idempotencyKey="k", skipAppProcesses=not default).status_code == 409
    said = post(by=by, idempotencyKey="said", skipAppProcesses=default)
    assert post(by=by, idempotencyKey="said").json == said.json


@pytest.mark.parametrize("said", [{}, {"skipAppProcesses": True}, {"skipAppProcesses": False}],
                         ids=str)
@pytest.mark.parametrize(("first_by", "then_by"),
                         [*itertools.permutations(["key", "token", "service"], 2)])
def test_a_replay_by_another_credential_of_the_owner_is_a_replay(post, first_by, then_by, said):
    body = {"idempotencyKey": "k", "agentBootstrap": BOOTSTRAP} | said
    first = post(by=first_by, **body)
    assert first.status_code == 201 and post(by=then_by, **body).json == first.json
    body["agentBootstrap"] = BOOTSTRAP | {"callbackToken": "x"}
    assert post(by=then_by, **body).status_code == 409
