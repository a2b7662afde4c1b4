"""POST /v1/sandboxes up to the row and the message: shape, plans, sizes, idempotency. Booting is
tested on stacks."""
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from app.wiring import get_attached
from models.database import connection
from models.operations import IdempotencyKey, Operation
from models.sandboxes import Sandbox
from models.states import Plan

SANDBOXES = "/v1/sandboxes"
SHAPE = {"id", "status", "cwd", "vmIP", "portMap", "createdAt", "preferredModel", "nodeId"}


@pytest.fixture
def create(edge, owner):
    headers = edge.key(owner)

    def send(**body):
        return edge.client().post(SANDBOXES, json=body, headers=headers)

    return send


def row(answer):
    with connection():
        return Sandbox.get_by_id(answer.json["id"])


def test_it_answers_at_once_with_the_contracts_shape(create):
    answer = create()
    assert answer.status_code == 201
    assert answer.json.keys() == SHAPE
    assert answer.json["status"] == "provisioning" and answer.json["cwd"] == "/home/user"
    assert (
        answer.json["portMap"] == {}
        and answer.json["preferredModel"] == ""
        and answer.json["nodeId"] == "n1"
    )
    assert answer.json["createdAt"].endswith("Z")


def test_no_body_is_an_empty_body(edge, owner):
    assert edge.api.post(SANDBOXES, headers=edge.key(owner)).status_code == 201


def test_every_field_of_the_contract_is_taken(create):
    answer = create(ports=[3000, 8766], env={"A": "1",
                                             "UNICODE": "ü"}, timeout=120, size="medium", vcpus=1,
                    memMb=1024, gitRepositoryUrl="https://git.example/x.git", gitRef="main",
                    preferredModel="some/model", skipAppProcesses=False, agentServerSource="serve",
                    agentBootstrap={"callbackUrl": "https://x.example",
                                    "callbackToken": "t"}, idempotencyKey="k" * 256)
    assert answer.status_code == 201, answer.text
    assert sorted(answer.json["portMap"].values()) == [3000, 8766]
    assert all(port.isdecimal() for port in answer.json["portMap"])
    assert answer.json["preferredModel"] == "some/model"
    made = row(answer)
    assert (made.vcpus, made.mem_mb) == (2, 2048), "an explicit size wins over vcpus and memMb"
    assert made.env == {"A": "1", "UNICODE": "ü"
                        } and made.idle_timeout_s == 120 and made.skip_app_processes is False
    assert (made.git_repository_url, made.git_ref) == ("https://git.example/x.git", "main")


@pytest.mark.parametrize(("body", "skipped"), [
    ({}, True), ({"agentServerSource": "x"}, False), ({"skipAppProcesses": False}, False),
    ({"agentServerSource": "x", "skipAppProcesses": True}, True),
])
def test_app_processes_are_skipped_unless_an_agent_server_is_given(create, body, skipped):
    assert row(create(**body)).skip_app_processes is skipped


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"ports": [0]}, "ports"), ({"ports": [65536]}, "ports"), ({"ports": ["3000"]}, "ports"),
        ({"ports": [True]}, "ports"), ({"ports": [3000.5]}, "ports"),
        ({"ports": [3000, 3000]}, "once"), ({"ports": 3000}, "ports"),
        ({"ports": {"3000": 1}}, "ports"), ({"ports": [1024]}, "reserved"),
        ({"ports": list(range(2000, 2065))}, "ports"), ({"env": []}, "env"),
        ({"env": {"A": 1}}, "env"), ({"env": {"A": None}}, "env"), ({"env": {"": "x"}}, "env"),
        ({"env": {"A=B": "x"}}, "env"), ({"env": {f"V{n}": "" for n in range(257)}}, "env"),
        ({"env": {"A": "x" * 65536}}, "env"), ({"timeout": 0}, "timeout"),
        ({"timeout": 86401}, "timeout"), ({"timeout": "60"}, "timeout"),
        ({"timeout": True}, "timeout"), ({"timeout": 1.5}, "timeout"), ({"timeout": -1}, "timeout"),
        ({"size": "huge"}, "size"), ({"size": 5}, "size"), ({"size": ""}, "size"),
        ({"vcpus": 1}, "unsupported shape"), ({"memMb": 1024}, "unsupported shape"),
        ({"vcpus": 1, "memMb": 1}, "unsupported shape"), ({"vcpus": "1", "memMb": 1024}, "vcpus"),
        ({"vcpus": 1.5, "memMb": 1024}, "unsupported shape"),
        ({"vcpus": 2, "memMb": 2048 << 20}, "unsupported shape"),
        ({"template": "opencode", "templateId": "x"}, "exclude"),
        ({"template": "unknown"}, "preset"), ({"template": 5}, "template"),
        ({"agentBootstrap": "x"}, "agentBootstrap"), ({"skipAppProcesses": "true"}, "skip"),
        ({"skipAppProcesses": 1}, "skip"), ({"idempotencyKey": "x" * 257}, "idempotencyKey"),
        ({"idempotencyKey": 5}, "idempotencyKey"), ({"surprise": 1}, "surprise"),
        ({"idempotencykey": "x"}, "idempotencykey"), ({"preferredModel": "x" * 129}, "preferred"),
        ({"gitRef": "main"}, "gitRef"),
        ({"gitRepositoryUrl": "https://me:secret@git.example/x"}, "gitRepositoryUrl"),
        ({"agentServerSource": {"run": "x"}}, "agentServerSource"),
        ({"agentServerSource": ""}, "agentServerSource"),
        ({"agentBootstrap": {"callbackUrl": "https://x.example"}}, "belong together"),
        (
            {"agentBootstrap": {"callbackUrl": "http://169.254.169.254/", "callbackToken": "t"}},
            "callbackUrl",
        ),
    ],
)
def test_a_bad_field_is_400_and_named(create, body, complaint):
    answer = create(**body)
    assert answer.status_code == 400 and complaint in answer.json["error"]


def test_null_is_the_same_as_leaving_a_field_out(create):
    assert create(size=None, ports=None, env=None, timeout=None,
                  idempotencyKey=None).status_code == 201


@pytest.mark.parametrize(
    ("plan", "body", "status", "shape"),
    [
        (Plan.FREE, {}, 402, None), (Plan.FREE, {"size": "small"}, 402, None),
        (Plan.STARTER, {}, 201, (2, 4096)), (Plan.STARTER_PLUS, {}, 201, (2, 4096)),
        (Plan.PERSONAL, {}, 201, (4, 8192)), (Plan.PRO, {}, 201, (8, 16384)),
        (Plan.ALWAYS_ON, {}, 201, (12, 36864)), (Plan.LEGACY_PRO, {}, 201, (1, 1024)),
        (Plan.LEGACY_MAX, {"size": "large"}, 201, (4, 4096)),
        (Plan.PERSONAL, {"size": "small"}, 402, None),
        (Plan.PERSONAL, {"size": "pro"}, 201, (4, 8192)), (Plan.PRO, {"size": "pro"}, 402, None),
        (Plan.LEGACY_PRO, {"size": "xlarge"}, 402, None),
        (Plan.LEGACY_PRO, {"vcpus": 2, "memMb": 2048}, 201, (2, 2048)),
        (Plan.STARTER, {"vcpus": 2, "memMb": 4096}, 201, (2, 4096)),
        (Plan.PERSONAL, {"vcpus": 3, "memMb": 1}, 400, None),
        (Plan.FREE, {"vcpus": 3, "memMb": 1}, 400, None),
    ],
)
def test_the_plan_decides_the_machine(edge, plan, body, status, shape):
    answer = edge.api.post(SANDBOXES, json=body, headers=edge.key(edge.newcomer(plan)))
    assert answer.status_code == status, answer.text
    if shape:
        made = row(answer)
        assert (made.vcpus, made.mem_mb) == shape


def test_a_pin_chooses_the_node(edge, owner):
    headers = edge.key(owner)
    assert edge.api.post(SANDBOXES, json={},
                         headers=headers | {"X-Svc-Node": "n1"}).json["nodeId"] == "n1"
    assert edge.api.post(SANDBOXES, json={},
                         headers=headers | {"X-Svc-Node": "other"}).status_code == 421
    assert edge.api.post(SANDBOXES, json={},
                         headers=headers | {"X-Svc-Node": "x" * 300}).status_code == 400


def test_a_replay_gets_the_first_answer_and_makes_nothing(create, owner):
    first = create(idempotencyKey="once", ports=[3000])
    again = create(ports=[3000], idempotencyKey="once")
    assert again.status_code == first.status_code == 201 and again.json == first.json
    with connection():
        assert Sandbox.select().where(Sandbox.owner == owner.id).count() == 1
        assert Operation.select().where(Operation.sandbox_id == first.json["id"]).count() == 1


def test_parallel_replays_make_one_sandbox(create, owner):
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: create(idempotencyKey="race", env={"A": "1"}), range(16)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json["id"]
                for answer in answers}) == 1 and len({answer.text
                                                      for answer in answers}) == 1
    with connection():
        assert Sandbox.select().where(Sandbox.owner == owner.id).count() == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"ports": [3001]}, {"env": {"A": "2"}}, {"timeout": 61}, {"size": "medium"},
        {"preferredModel": "x"}, {"skipAppProcesses": False},
        {"gitRepositoryUrl": "https://x.example/y"}, {"agentBootstrap": {"a": 1}},
        {"agentServerSource": "x"},
    ],
)
def test_the_same_key_with_another_body_is_409(create, changed):
    body = {"ports": [3000], "env": {"A": "1"}, "timeout": 60, "idempotencyKey": "k"}
    assert create(**body).status_code == 201
    assert create(**body | changed).status_code == 409


def test_the_order_of_fields_and_defaults_do_not_make_another_body(create):
    first = create(idempotencyKey="k", env={"A": "1", "B": "2"}, timeout=60)
    again = create(timeout=60.0, env={"B": "2", "A": "1"}, idempotencyKey="k", ports=[],
                   skipAppProcesses=True)
    assert again.json == first.json


def test_a_default_idle_timeout_and_whole_fractions_do_not_make_another_body(edge, create):
    default_s = edge.settings.idle_timeout_s
    bare = create(idempotencyKey="bare")
    assert create(idempotencyKey="bare", timeout=default_s).json == bare.json
    assert create(idempotencyKey="bare", timeout=default_s,
                  skipAppProcesses=True).json == bare.json
    assert create(idempotencyKey="bare", timeout=default_s + 1).status_code == 409
    said = create(idempotencyKey="said", timeout=default_s, vcpus=1, memMb=1024)
    assert said.status_code == 201
    assert create(idempotencyKey="said", vcpus=1.0, memMb=1024.0).json == said.json


def test_whole_fractions_of_a_bootstrap_do_not_make_another_body(create):
    def ask(**bootstrap):
        return create(idempotencyKey="k", agentServerSource="x", agentBootstrap=bootstrap)

    first = ask(a=[1, {"b": 0}], most=2**53 - 1, part=0.5, yes=True)
    again = ask(a=[1.0, {"b": -0.0}], most=2.0**53 - 1, part=0.5, yes=True)
    assert first.status_code == 201 and again.json == first.json
    assert ask(a=[1, {"b": 0}], most=2**53 - 1, part=0.5, yes=1).status_code == 409
    assert ask(a=[1, {"b": 0.1}], most=2**53 - 1, part=0.5, yes=True).status_code == 409


def test_the_same_bytes_are_the_same_request_whatever_the_default_is_by_then(
        edge, create, monkeypatch):
    default_s = edge.settings.idle_timeout_s
    said, bare = create(idempotencyKey="said-once", timeout=default_s), create(idempotencyKey="bar")
    wired = get_attached(edge.api.application)
    later = replace(wired.deps.settings, idle_timeout_s=default_s + 300)
    monkeypatch.setattr(wired, "deps", replace(wired.deps, settings=later))
    assert create(idempotencyKey="said-once", timeout=default_s).json == said.json
    assert create(idempotencyKey="bar").json == bare.json


def test_keys_are_scoped_to_their_owner(edge, create):
    first = create(idempotencyKey="shared")
    other = edge.api.post(
        SANDBOXES, json={"idempotencyKey": "shared"}, headers=edge.key(edge.newcomer())
    )
    assert other.status_code == 201 and other.json["id"] != first.json["id"]


def test_a_refused_request_does_not_use_up_its_key(create):
    assert create(idempotencyKey="k", timeout=0).status_code == 400
    assert create(idempotencyKey="k", size="pro").status_code == 402
    assert create(idempotencyKey="k").status_code == 201


def test_a_key_that_is_forgotten_while_it_is_asked_for_is_reserved_anew(create, monkeypatch):
    first = create(idempotencyKey="k")
    get = IdempotencyKey.get

    def forgotten(*conditions, **filters):
        monkeypatch.undo()
        IdempotencyKey.delete().where(IdempotencyKey.resource_id == first.json["id"]).execute()
        return get(*conditions, **filters)

    monkeypatch.setattr(IdempotencyKey, "get", forgotten)
    second = create(idempotencyKey="k")
    assert second.status_code == 201 and second.json["id"] != first.json["id"]
    assert create(idempotencyKey="k").json == second.json


def test_secrets_of_the_sandbox_are_in_no_answer(edge, create, owner):
    made = create(env={"TOKEN": "hunter2"})
    token = row(made).agent_token
    for answer in (made, edge.api.get(f"{SANDBOXES}/{made.json['id']}", headers=edge.key(owner)),
                   edge.api.get(SANDBOXES, headers=edge.key(owner))):
        assert token not in answer.text and "hunter2" not in answer.text
