"""Errors: each status of the contract where it is due, always with `{error}` and nothing else."""
import pytest

from models.states import Plan
from services.hosts.nodes import NodeFacts, heartbeat

SANDBOXES, KEYS = "/v1/sandboxes", "/v1/api-keys"
JSON = {"Content-Type": "application/json"}


def made(edge, owner):
    return edge.api.post(SANDBOXES, json={}, headers=edge.key(owner)).json["id"]


def refusals(edge, owner):
    """Status, and a request that must get it."""
    key, token = edge.key(owner), edge.jwt(owner)
    mine, theirs = made(edge, owner), made(edge, edge.newcomer())
    heartbeat(NodeFacts("full", "127.0.0.1", 0, 0, 20000, 29999, {}))
    edge.api.post(SANDBOXES, json={"idempotencyKey": "used"}, headers=key)
    free = edge.key(edge.newcomer(Plan.FREE))
    return [
        (400, "POST", SANDBOXES, key, {"json": {"vcpus": 3, "memMb": 5}}),
        (400, "POST", SANDBOXES, key, {"json": {"template": "codex", "templateId": "x"}}),
        (400, "POST", SANDBOXES, key, {"json": {"template": "no-such-preset"}}),
        (400, "POST", SANDBOXES, key, {"data": b"{", "headers": JSON}),
        (401, "GET", SANDBOXES, {}, {}),
        (401, "GET", KEYS, {"Authorization": "Bearer svc_sk_unknown"}, {}),
        (402, "POST", SANDBOXES, free, {"json": {}}),
        (402, "POST", SANDBOXES, key, {"json": {"size": "fleet"}}),
        (403, "GET", f"{SANDBOXES}/{theirs}", key, {}),
        (403, "POST", KEYS, key, {"json": {"name": "x"}}),
        (404, "GET", f"{SANDBOXES}/unknown", key, {}),
        (404, "DELETE", f"{KEYS}/unknown", token, {}),
        (404, "GET", "/v1/no-such-route", key, {}),
        (405, "PUT", SANDBOXES, key, {}),
        (409, "POST", SANDBOXES, key, {"json": {"idempotencyKey": "used", "timeout": 5}}),
        (409, "POST", f"{SANDBOXES}/{mine}/exec", key, {"json": {"cmd": "true"}}),
        (413, "POST", SANDBOXES, key, {
            "data": b" " * (256 * 1024 + 1), "headers": JSON
        }),
        (415, "POST", SANDBOXES, key, {"data": b"{}", "headers": {"Content-Type": "text/plain"}}),
        (421, "GET", f"{SANDBOXES}/{mine}", key | {"X-Svc-Node": "elsewhere"}, {}),
        (503, "POST", SANDBOXES, key | {"X-Svc-Node": "full"}, {"json": {}}),
    ]


def test_every_status_comes_with_an_error_text_and_nothing_else(edge):
    for status, method, path, credential, options in refusals(edge, edge.newcomer()):
        headers = credential | options.pop("headers", {})
        answer = edge.api.open(path, method=method, headers=headers, **options)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        assert answer.mimetype == "application/json" and list(answer.json) == ["error"], path
        assert isinstance(answer.json["error"], str) and answer.json["error"], path
        assert ("WWW-Authenticate" in answer.headers) is (status == 401), path
        assert ("Allow" in answer.headers) is (status == 405), path


@pytest.mark.parametrize(
    "body", [{"vcpus": 1}, {"memMb": 1024}, {"vcpus": 1, "memMb": 2048}, {"vcpus": 0, "memMb": 0}])
def test_a_shape_that_is_no_row_is_exactly_unsupported_shape(edge, body):
    answer = edge.api.post(SANDBOXES, json=body, headers=edge.key(edge.newcomer()))
    assert (answer.status_code, answer.json) == (400, {"error": "unsupported shape"})


def test_the_sixth_key_of_an_hour_is_429(edge):
    headers = edge.jwt(edge.newcomer())
    answers = [edge.api.post(KEYS, json={"name": "n"}, headers=headers) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [201] * 5 + [429]
    assert list(answers[-1].json) == ["error"] and int(answers[-1].headers["Retry-After"]) > 0


@pytest.mark.parametrize("path",
                         [SANDBOXES, f"{SANDBOXES}/unknown", KEYS, f"{SANDBOXES}/unknown/exec"])
def test_the_credential_comes_before_everything_else(edge, path):
    for method in ("GET", "POST", "DELETE"):
        answer = edge.api.open(path, method=method, data=b"not json")
        assert answer.status_code in (401, 405)
        assert answer.status_code == 405 or answer.headers["WWW-Authenticate"] == "Bearer"


def test_health_needs_no_credential(edge):
    assert edge.api.get("/health").status_code == edge.identity.get("/health").status_code == 200
    assert edge.api.get("/health").json == {"status": "ok"}
