"""What a create with a preset writes, and what its caller gets while nobody works on it: on rows,
without processes."""
import concurrent.futures
from datetime import timedelta

import pytest

from app.http import admission
from guest.presets import SLUGS
from models.database import connection, database, now
from models.nodes import Node
from models.operations import IdempotencyKey, Operation
from models.sandboxes import Sandbox
from models.states import OperationKind, PresetState, SandboxStatus
from services.hosts import placement
from services.hosts.nodes import NodeFacts, heartbeat
from services.operations import sweeps
from services.operations.begin import lock_sandbox
from services.operations.claims import claim
from services.sandboxes import outcomes
from services.sandboxes.outcomes import Outcome
from services.templates.presets import PRESETS
from tests.stack.edge import make_edge

SANDBOXES = "/v1/sandboxes"
READY = {"preset_state": PresetState.READY}


@pytest.fixture(scope="module")
def edge(postgres_url, redis_url, tmp_path_factory):
    """Waits hardly at all."""
    yield from make_edge(
        postgres_url, redis_url, tmp_path_factory.mktemp("keys"), operation_wait_s=0.1,
        preset_build_wait_s=0.0, preset_verify_s=0.0, readiness_wait_s=0.1)


@pytest.fixture
def create(edge, owner):
    headers = edge.key(owner)

    def send(**body):
        return edge.client().post(SANDBOXES, json=body, headers=headers)

    return send


def rows_of(owner):
    with connection():
        return list(Sandbox.select().where(Sandbox.owner == owner.id))


def end_boot(sandbox, *, ok=True, **columns):
    """End the boot as its node would."""
    with connection():
        claimed = claim(sandbox.id, sandbox.op_seq, "test", 60)
        status = SandboxStatus.RUNNING if ok else SandboxStatus.STOPPED
        outcomes.finish(claimed, Outcome(ok, status, sandbox=columns,
                                         error=None if ok else "It did not start."))


def test_the_presets_are_those_of_the_image():
    assert tuple(PRESETS) == SLUGS


def test_what_is_not_done_in_time_is_no_success_and_names_the_sandbox(create, owner):
    answer = create(template="pi")
    (made,) = rows_of(owner)
    assert answer.status_code == 503 and made.id in answer.json["error"]
    assert answer.headers["Retry-After"]
    assert (made.status, made.preset, made.preset_state) == ("provisioning", "pi", None)
    assert made.skip_app_processes and made.start_command is None


def test_asking_again_gives_the_same_sandbox_and_in_the_end_its_answer(edge, create, owner):
    body = {"template": "lfg", "idempotencyKey": "k"}
    assert [create(**body).status_code for _ in range(2)] == [503, 503]
    (made,) = rows_of(owner)
    assert (made.start_command, made.readiness_port) == ("/opt/svc/presets/lfg/start", 8766)
    end_boot(made, **READY)
    first = create(**body)
    assert first.status_code == 201 and first.json["templateStatus"] == "ready"
    with connection():
        Sandbox.update(status=SandboxStatus.HIBERNATED).where(Sandbox.id == made.id).execute()
    assert create(**body).text == first.text
    assert create(**body, ports=[8766], skipAppProcesses=False).text == first.text
    assert len(rows_of(owner)) == 1


def test_the_answer_is_kept_longer_than_the_boot_is_remembered(create, owner):
    body = {"template": "pi", "idempotencyKey": "k"}
    create(**body)
    (made,) = rows_of(owner)
    end_boot(made, **READY)
    first = create(**body)
    assert first.status_code == 201
    with connection():
        Sandbox.update(status=SandboxStatus.STOPPED).where(Sandbox.id == made.id).execute()
        Operation.update(finished_at=now() - timedelta(days=31)).where(
            Operation.sandbox_id == made.id).execute()
    assert sweeps.forget_old(30) >= 1
    assert create(**body).text == first.text


@pytest.mark.parametrize("said", [{}, {"skipAppProcesses": True}, {"skipAppProcesses": False}],
                         ids=str)
def test_it_is_the_same_request_whichever_credential_of_the_owner_asks(edge, owner, said):
    body = {"template": "codex", "idempotencyKey": "k"} | said
    for headers in (edge.jwt(owner), edge.key(owner), edge.service(owner)):
        answer = edge.client().post(SANDBOXES, json=body, headers=headers)
        assert answer.status_code == 503 and "still being made" in answer.json["error"]
    (made,) = rows_of(owner)
    end_boot(made, **READY)
    answers = [edge.client().post(SANDBOXES, json=body, headers=headers)
               for headers in (edge.key(owner), edge.jwt(owner))]
    assert {answer.status_code for answer in answers} == {201}
    assert {answer.json["id"] for answer in answers} == {made.id}


def test_a_boot_that_fails_gives_the_key_back(create, owner):
    body = {"template": "pi", "idempotencyKey": "k"}
    create(**body)
    (first,) = rows_of(owner)
    end_boot(first, ok=False)
    answer = create(**body)
    assert answer.status_code == 503 and "did not start" in answer.json["error"]
    assert create(**body).status_code == 503
    with connection():
        kept = IdempotencyKey.get(IdempotencyKey.owner_id == owner.id)
    assert {row.id for row in rows_of(owner)} == {first.id, kept.resource_id}


def test_a_refused_request_makes_nothing(create, owner):
    for body in ({"template": "vi"}, {"template": "pi", "templateId": "x"}, {"template": "Pi"},
                 {"template": ""}):
        assert create(**body).status_code == 400, body
    assert rows_of(owner) == []


def test_those_that_wait_for_presets_take_no_thread_from_others(create, edge, owner):
    places = edge.api.application.extensions["admission"][admission.PRESET]
    taken = [name for name in ("one", "two") for _ in range(places.capacity) if places.take(name)]
    assert not places.take("three")
    refused = create(template="pi")
    assert refused.status_code == 503 and "Too many calls" in refused.json["error"]
    assert rows_of(owner) == [] and create().status_code == 201
    for name in taken:
        places.give_back(name)
    create(template="pi")
    assert len(rows_of(owner)) == 2, "each gives its place back"
    assert places.take("three")
    places.give_back("three")


def test_it_goes_to_a_node_that_has_the_preset_and_to_any_if_none_has(create, edge, owner):
    heartbeat(NodeFacts("n2", "127.0.0.1", 100_000, 1_000_000, 20000, 29999, {}, presets=("pi",)))
    try:
        for slug in ("pi", "codex"):
            create(template=slug)
        assert {row.preset: row.node_id for row in rows_of(owner)} == {"pi": "n2", "codex": "n1"}
        with connection():
            Node.update(vcpus=0).where(Node.id == "n2").execute()
        refused = create(template="pi")
        assert refused.status_code == 503 and len(rows_of(owner)) == 2, "it has no room"
        pinned = edge.key(owner) | {"X-Svc-Node": "n1"}
        edge.api.post(SANDBOXES, json={"template": "pi"}, headers=pinned)
        assert sorted(row.node_id for row in rows_of(owner)) == ["n1", "n1", "n2"]
    finally:
        with connection():
            Node.update(heartbeat_at="epoch").where(Node.id == "n2").execute()


def test_a_node_that_tells_of_other_presets_meanwhile_is_not_missed(edge):
    def tell():
        for presets in [["pi"], []] * 200:
            with connection():
                Node.update(presets=presets).execute()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        work = pool.submit(tell)
        while not work.done():
            with connection(), database.atomic():
                assert placement.claim_node(edge.settings, 1, 1024, preset="pi").id
    work.result()


def test_what_a_node_reports_counts_only_while_it_holds_the_operation(create, owner):
    create(template="pi")
    (made,) = rows_of(owner)
    with connection():
        claimed = claim(made.id, made.op_seq, "test", 60)
        failed = {"preset_state": PresetState.FAILED, "preset_error": "none here"}
        outcomes.report_columns(claimed, failed)
        assert Sandbox.get_by_id(made.id).preset_error == "none here"
        Operation.update(epoch=99).where(Operation.id == claimed.operation_id).execute()
        with pytest.raises(outcomes.LeaseLost):
            outcomes.report_columns(claimed, READY | {"preset_error": None})
        assert lock_sandbox(made.id).task == OperationKind.BOOT
