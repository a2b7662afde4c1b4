"""Create, fork and wake: what the plan allows, where it runs, what a repeated key gives, what is
kept for later."""
from datetime import timedelta

import pytest

from models.database import connection, now
from models.nodes import PortBinding
from models.operations import IdempotencyKey
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import Plan, SnapshotState
from models.users import User
from services.accounts import users
from services.hosts.nodes import NodeFacts, heartbeat
from services.metering.plans import PLAN_SIZES, SIZES
from services.operations import idempotency

SANDBOXES = "/v1/sandboxes"


@pytest.fixture
def post(edge, owner):
    headers = edge.key(owner)

    def send(path="", pin=None, **body):
        pinned = {"X-Svc-Node": pin} if pin else {}
        return edge.api.post(f"{SANDBOXES}{path}", json=body, headers=headers | pinned)

    return send


@pytest.fixture
def snapshot(post, owner):
    """A ready snapshot of the owner's, of a machine with 1 vCPU and 1 GB."""
    source = post().json["id"]
    with connection():
        Snapshot.create(id=f"snap-{source}", owner=owner.id, node_id="n1", source_sandbox_id=source,
                        vcpus=1, mem_mb=1024, cwd="/home/user", state=SnapshotState.READY)
    return f"snap-{source}"


def row(answer):
    assert answer.status_code == 201, answer.text
    with connection():
        return Sandbox.get_by_id(answer.json["id"])


@pytest.mark.parametrize(("plan", "shape", "status"), [
    (Plan.FREE, (1, 1024), 402),
    (Plan.LEGACY_PRO, (1, 1024), 201),
    (Plan.STARTER, (1, 1024), 201),
    (Plan.STARTER, (4, 8192), 402),
    (Plan.LEGACY_MAX, (4, 8192), 402),
    (Plan.ALWAYS_ON, (4, 8192), 201),
])
def test_the_plan_decides_over_forks_too(edge, owner, post, snapshot, plan, shape, status):
    with connection():
        Snapshot.update(vcpus=shape[0], mem_mb=shape[1]).where(Snapshot.id == snapshot).execute()
    users.set_plan(owner, plan)
    answer = post("/fork", snapshotId=snapshot)
    assert answer.status_code == status, answer.text
    if status == 201:
        assert (row(answer).vcpus,
                row(answer).mem_mb) == shape, "a fork has the shape of its snapshot"


def test_a_fork_of_a_sandbox_asks_the_plan_too(edge, owner, post):
    made = post().json["id"]
    with connection():
        Sandbox.update(status="running", task=None).where(Sandbox.id == made).execute()
    users.set_plan(owner, Plan.FREE)
    assert post(f"/{made}/fork").status_code == 402


def test_a_snapshot_is_forked_on_its_node_and_a_pin_to_another_is_421(edge, post, snapshot):
    heartbeat(NodeFacts("roomier", "127.0.0.1", 200_000, 200_000_000, 20000, 29999, {}))
    assert post("/fork", snapshotId=snapshot).json["nodeId"] == "n1"
    assert post("/fork", pin="n1", snapshotId=snapshot).json["nodeId"] == "n1"
    answer = post("/fork", pin="roomier", snapshotId=snapshot)
    assert answer.status_code == 421 and "n1" in answer.json["error"]


def test_a_pin_to_a_full_node_is_503(post):
    heartbeat(NodeFacts("tiny", "127.0.0.1", 1, 1024, 20000, 29999, {}))
    assert post(pin="tiny").status_code == 201
    answer = post(pin="tiny")
    assert (
        answer.status_code == 503
        and answer.headers["Retry-After"]
        and "tiny has 0 vCPUs" in answer.json["error"]
    )


def test_a_machine_too_large_for_its_node_is_503_that_says_what_is_short_and_changes_nothing(
        post, owner):
    heartbeat(NodeFacts("narrow", "127.0.0.1", 1, 2048, 20000, 29999, {}))
    answer = post(pin="narrow", size="large", idempotencyKey="too large")
    assert answer.status_code == 503 and "Retry-After" not in answer.headers
    assert answer.json["error"].endswith(
        "1 vCPU and 2048 MB, so 3 vCPUs and 2048 MB of memory are short.")
    with connection():
        assert not Sandbox.select().where(Sandbox.owner == owner.id).exists()
        assert not PortBinding.select().where(PortBinding.node_id == "narrow").exists()
    assert post(size="small",
                idempotencyKey="too large").status_code == 201, "the key was not used up"


@pytest.mark.parametrize("path", ["", "/fork"])
def test_a_replay_gets_its_answer_although_the_plan_has_ended(edge, owner, post, snapshot, path):
    body = {"idempotencyKey": "lost answer"} | ({"snapshotId": snapshot} if path else {})
    first = post(path, **body)
    users.set_plan(owner, Plan.FREE)
    again = post(path, **body)
    assert (first.status_code, again.status_code) == (201, 201) and again.json == first.json
    assert post(path, **body | {"idempotencyKey": "another"}).status_code == 402


@pytest.mark.parametrize("path", ["", "/fork"])
def test_a_replay_keeps_to_the_pin_of_its_own(post, owner, snapshot, path):
    heartbeat(NodeFacts("roomier", "127.0.0.1", 200_000, 200_000_000, 20000, 29999, {}))
    body = {"idempotencyKey": "pinned"} | ({"snapshotId": snapshot} if path else {})
    first = post(path, pin="n1", **body)
    assert first.json["nodeId"] == "n1" and post(path, **body).json == first.json
    for pin in ("roomier", "nowhere"):
        answer = post(path, pin=pin, **body)
        assert answer.status_code == 421 and "n1" in answer.json["error"]
    assert post(path, pin="n1", **body).json == first.json


def test_a_replay_gets_the_first_answer_although_the_sandbox_has_changed(post, snapshot):
    for path, body in (("", {}), ("/fork", {"snapshotId": snapshot})):
        first = post(path, idempotencyKey="k", **body)
        with connection():
            Sandbox.update(status="running",
                           vm_ip="10.0.0.9").where(Sandbox.id == first.json["id"]).execute()
        assert post(path, idempotencyKey="k", **body).data == first.data


@pytest.mark.parametrize(
    ("length", "create", "fork", "taken"), [(256, 201, 201, 409), (257, 400, 400, 400)]
)
def test_a_key_has_at_most_256_characters(post, snapshot, length, create, fork, taken):
    source = post().json["id"]
    with connection():
        Sandbox.update(status="stopped", task=None).where(Sandbox.id == source).execute()
    key = "k" * length
    assert post(idempotencyKey=key).status_code == create
    assert post("/fork", snapshotId=snapshot, idempotencyKey=key).status_code == fork
    assert post(f"/{source}/snapshot", idempotencyKey=key).status_code == taken


def test_an_empty_key_is_no_key(post, snapshot):
    """The contract speaks of a non-empty key that is repeated."""
    for path, body in (("", {}), ("/fork", {"snapshotId": snapshot})):
        first, second = (post(path, idempotencyKey="", **body) for _ in range(2))
        assert row(first).id != row(second).id


def test_a_key_lives_as_long_as_its_sandbox_and_a_day_at_least(edge, post):
    def keys():
        with connection():
            return set(IdempotencyKey.select(IdempotencyKey.key).tuples())

    alive, gone, fresh = (post(idempotencyKey=name).json["id"]
                          for name in ("alive", "gone", "fresh"))
    with connection():
        kept_for = IdempotencyKey.get(IdempotencyKey.resource_id == fresh).expires_at - now()
        Sandbox.update(status="stopped", task=None).where(Sandbox.id.in_([gone, fresh])).execute()
        IdempotencyKey.update(expires_at=now() - timedelta(seconds=1)).where(
            IdempotencyKey.resource_id.in_([alive, gone])).execute()
    assert kept_for > timedelta(hours=23, minutes=55)
    idempotency.forget_expired()
    left = {key for (key,) in keys()}
    assert {"alive", "fresh"} <= left and "gone" not in left


def test_the_idle_timeout_is_600_s_unless_asked_otherwise(post):
    assert row(post()).idle_timeout_s == 600
    assert row(post(timeout=86_400)).idle_timeout_s == 86_400


def test_extend_restarts_the_clock_and_may_set_another_timeout(post):
    made = row(post(timeout=100)).id

    def left_s():
        with connection():
            return (Sandbox.get_by_id(made).idle_at - now()).total_seconds()

    with connection():
        Sandbox.update(status="running", task=None,
                       idle_at=now()).where(Sandbox.id == made).execute()
    assert post(f"/{made}/extend").json["id"] == made and 90 < left_s() <= 100
    post(f"/{made}/extend", timeout=1000)
    assert 990 < left_s() <= 1000
    with connection():
        Sandbox.update(idle_at=now()).where(Sandbox.id == made).execute()
    post(f"/{made}/extend")
    assert 990 < left_s() <= 1000, "the new timeout stays"
    for timeout in (0, 86_401, "60"):
        assert post(f"/{made}/extend", timeout=timeout).status_code == 400


def test_a_wake_may_bring_ports_and_a_readiness_port(edge, post):
    """Another readiness port than the one that was waited for is waited for first, see
    `test_readiness.py`."""
    made = row(post()).id
    with connection():
        Sandbox.update(status="running", task=None,
                       readiness_port=3000).where(Sandbox.id == made).execute()
    assert post(f"/{made}/wake", readinessPort=3000).status_code == 200
    for body in ({"readinessPort": 0}, {"readinessPort": "3000"}, {"ports": [70_000]}, {
            "ports": [3000, 3000]
    }):
        assert post(f"/{made}/wake", **body).status_code == 400, body


def test_fork_keys_are_scoped_to_their_owner(edge, post, snapshot):
    mine = post("/fork", snapshotId=snapshot, idempotencyKey="shared").json["id"]
    other = edge.newcomer()
    with connection():
        source = Snapshot.get_by_id(snapshot).source_sandbox_id
        Sandbox.update(owner=other.id).where(Sandbox.id == source).execute()
        Snapshot.update(owner=other.id).where(Snapshot.id == snapshot).execute()
    fork = {"snapshotId": snapshot, "idempotencyKey": "shared"}
    theirs, again = (edge.api.post(f"{SANDBOXES}/fork", json=fork, headers=edge.key(other))
                     for _ in range(2))
    assert row(theirs).owner_id == other.id and theirs.json["id"] != mine
    assert again.json == theirs.json, "a replay gets the caller's own"


def test_the_sizes_are_the_contracts_table():
    table = {
        "small": (1, 1), "medium": (2, 2), "large": (4, 4), "standard": (2, 4), "pro": (4, 8),
        "xlarge": (8, 16), "fleet": (12, 36)
    }
    assert {name: (size.vcpus, size.mem_mb / 1024) for name, size in SIZES.items()} == table
    legacy = {"small", "medium", "large"}
    assert {plan: set(sizes) for plan, sizes in PLAN_SIZES.items()} == {
        Plan.STARTER: {"standard"}, Plan.STARTER_PLUS: {"standard"}, Plan.PERSONAL: {"pro"},
        Plan.PRO: {"xlarge"}, Plan.ALWAYS_ON: {"fleet"}, Plan.LEGACY_PRO: legacy,
        Plan.LEGACY_MAX: legacy,
    }


@pytest.mark.parametrize("of", ["a sandbox", "a snapshot"])
def test_what_a_fork_says_about_itself_is_kept(post, snapshot, of):
    path, body = "/fork", {"snapshotId": snapshot}
    if of == "a sandbox":
        source = post().json["id"]
        with connection():
            Sandbox.update(status="running", task=None).where(Sandbox.id == source).execute()
        path, body = f"/{source}/fork", {}
    made = row(
        post(path, **body, ports=[3000], sessionId="s", projectId="p", projectSlug="slug",
             appId="a", preferredModel="m", skipAppProcesses=True, readinessPort=3000,
             startCommand="serve"))
    with connection():
        assert [binding.guest_port for binding in PortBinding.select().where(
            (PortBinding.sandbox_id == made.id)
            & (PortBinding.host_port != made.agent_port))] == [3000]
    assert (made.session_id, made.project_id, made.project_slug, made.app_id) == (
        "s",
        "p",
        "slug",
        "a",
    )
    assert (made.preferred_model, made.skip_app_processes) == ("m", True)
    assert (made.start_command, made.readiness_port) == ("serve", 3000), "the wake spec"


def test_only_both_owners_may_fork_a_snapshot(edge, post, snapshot):
    stranger = edge.key(edge.newcomer())
    assert edge.api.post(f"{SANDBOXES}/fork", json={"snapshotId": snapshot},
                         headers=stranger).status_code == 403
    with connection():
        source = Snapshot.get_by_id(snapshot).source_sandbox_id
        someone = User.select().where(User.email == edge.people["SVC_MALLORY_EMAIL"]).get()
        Sandbox.update(owner=someone.id).where(Sandbox.id == source).execute()
    assert post(
        "/fork",
        snapshotId=snapshot).status_code == 403, "the source sandbox must be the caller's as well"
