"""Whatever is sent to whatever route, the answer is a 4xx with {"error": ...}, never a 5xx, and
nothing is made."""
import json
import random

import pytest

from models.database import connection
from models.sandboxes import Sandbox
from services.accounts import tokens
from services.hosts.nodes import heartbeat
from tests.stack.edge import NODE

JSON = {"Content-Type": "application/json"}
SANDBOX = "/v1/sandboxes/unknown00000"
DEEP, KIB = 3000, 1024


def nested(depth):
    value = "x"
    for _ in range(depth):
        value = {"a": [value]}
    return value


# What no route with a body takes, whatever the body is for.
NOT_JSON = {
    "truncated": b'{"cmd": "x"',
    "text": b"hello",
    "two values": b"{} {}",
    "not UTF-8": b'{"cmd": "\xff\xfe"}',
    "UTF-16": '{"cmd": "x"}'.encode("utf-16"),
    "NaN": b'{"timeout": NaN}',
    "infinity": b'{"timeout": -Infinity}',
    "deep list": b"[" * DEEP,
    "deep object": b'{"a":' * DEEP,
    "too deep by one": b"[" * 33 + b"]" * 33,
    "texts without commas": b'""' * 5000,
    "huge integer": b'{"timeout": ' + b"9" * 5000 + b"}",
    "only a NUL": b"\0",
    "byte order mark": b"\xef\xbb\xbf{}",
}
NOT_AN_OBJECT = {"string": "x", "number": 5, "float": 1e308, "true": True, "null": None}
IN_AN_OBJECT = {
    "NUL in a value": {
        "name": "a\0b", "cmd": "a\0b", "snapshotId": "a\0b", "preferredModel": "a\0b",
        "email": "a\0b", "password": "a\0b", "appId": "a\0b"
    },
    "NUL in a name": {"a\0b": "x"},
    "lone surrogate": {
        "name": "\ud800", "cmd": "\udfff", "snapshotId": "\ud800", "gitRef": "\ud800",
        "email": "\ud800", "appId": "\ud800"
    },
    "big number": {"timeout": 2**31, "readinessPort": 2**31, "timeoutMs": 2**31},
    "enormous number": {"timeout": 10**400, "readinessPort": -(10**400)},
    "deep": {"agentBootstrap": nested(40), "env": nested(40)},
    "unknown field": {"surprise": 1},
    "mongo": {
        "email": {"$gt": ""}, "password": {"$gt": ""}, "cmd": {"$gt": ""},
        "snapshotId": {"$gt": ""}
    },
}

# Method, path, host: every route that reads a body.
WITH_BODY = [
    ("POST", "/v1/sandboxes", "api"),
    ("POST", "/v1/sandboxes/fork", "api"),
    *(("POST", f"{SANDBOX}/{action}", "api") for action in (
        "hibernate", "pause", "wake", "resume", "extend", "snapshot", "fork", "exec", "files",
        "filesystem-snapshot", "tarball")),
    ("PATCH", f"{SANDBOX}/disk", "api"),
    ("POST", "/v1/api-keys", "api"),
    ("POST", "/v1/templates/unknown/latest", "api"),
    ("POST", "/v1/deploys", "api"),
    ("POST", "/v1/deploys/unknown/rollback", "api"),
    ("POST", "/login", "identity"),
    ("POST", "/logout", "identity"),
    ("POST", "/token", "identity"),
    ("POST", "/admin/service-token/revoke", "identity"),
]
# The guest gateway reads the body of this one.
ELSEWHERE = {"/v1/messages"}
ROUTES = pytest.mark.parametrize(("method", "path", "host"), WITH_BODY,
                                 ids=[row[1] for row in WITH_BODY])


@pytest.fixture(autouse=True)
def node(edge):
    """Nobody else speaks for it, and a test may find it silent for too long."""
    heartbeat(NODE)


@pytest.fixture(scope="module")
def send(edge):
    """Sends with a credential that is good for the route; on the identity host with a session or as
    administrator."""
    alice = edge.user("alice")
    browser = edge.identity.application.test_client()
    signed_in = {"email": alice.email, "password": edge.people["SVC_ALICE_PASSWORD"]}
    browser.post("/login", json=signed_in)

    def bearer(name):
        minted = tokens.mint_service_token(edge.settings, edge.keys.get_signing(), name, "")
        return {"Authorization": f"Bearer {minted.text}"}

    service = bearer("tests") | {"X-On-Behalf-Of": alice.id}
    own = {"/v1/deploys": service, "/v1/deploys/unknown/rollback": service,
           "/admin/service-token/revoke": bearer("admin")}

    def request(method, path, host, **options):
        usual = edge.jwt(alice) if host == "api" else {}
        headers = {**own.get(path, usual), **options.pop("headers", {})}
        client = edge.api if host == "api" else browser
        return client.open(path, method=method, headers=headers, **options)

    return request


def refused(answer, *statuses):
    assert answer.status_code in (statuses or range(400, 500)), answer.text
    assert list(answer.json) == ["error"] and answer.json["error"].strip()
    assert len(answer.data) < 2000


def test_every_route_with_a_body_is_tried(edge):
    def known(path):
        for name, value in (("sandbox_id", "unknown00000"), ("template_id", "unknown"),
                            ("slug", "unknown")):
            path = path.replace(f"<{name}>", value)
        return path

    expected = {
        known(rule.rule)
        for client in (edge.api, edge.identity)
        for rule in client.application.url_map.iter_rules()
        if {"POST", "PATCH"} & rule.methods
    }
    assert expected - ELSEWHERE == {path for _, path, _ in WITH_BODY}


@ROUTES
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_not_json(send, method, path, host, body):
    refused(send(method, path, host, data=body, headers=JSON), 400)


@ROUTES
@pytest.mark.parametrize("body", NOT_AN_OBJECT.values(), ids=NOT_AN_OBJECT)
def test_json_that_is_not_an_object(send, method, path, host, body):
    refused(send(method, path, host, data=json.dumps(body), headers=JSON), 400)


@ROUTES
@pytest.mark.parametrize("body", IN_AN_OBJECT.values(), ids=IN_AN_OBJECT)
def test_hostile_values(send, method, path, host, body):
    refused(send(method, path, host, data=json.dumps(body), headers=JSON), 400)


@ROUTES
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "\xff"])
def test_another_content_type(send, method, path, host, kind):
    refused(send(method, path, host, data=b"{}", headers={"Content-Type": kind}), 415)


def limit_of(path, host):
    return 16 * KIB if host == "identity" else 16 * 1024 * KIB if path.endswith(
        "/files") else 256 * KIB


@ROUTES
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in pieces"])
def test_a_body_above_the_limit_of_its_route(send, method, path, host, announced):
    """413 for a byte too many, before anything of it is looked at; the limit itself passes."""
    limit = limit_of(path, host)
    options = {"headers": JSON} if announced else {
        "headers": JSON, "environ_overrides": {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
    }
    refused(send(method, path, host, data=b"{" * (limit + 1), **options), 413)
    assert str(limit) in send(method, path, host, data=b"{" * (limit + 1),
                              headers=JSON).json["error"]
    refused(send(method, path, host, data=b"{" * limit, **options), 400)


@ROUTES
@pytest.mark.parametrize("method_tried", ["PUT", "PATCH", "TRACE"])
def test_another_method_is_405_and_says_which(send, method, path, host, method_tried):
    answer = send("POST" if method_tried == method else method_tried, path, host)
    refused(answer, 405)
    assert method in answer.headers["Allow"]


@pytest.mark.parametrize("path", [
    "/",
    "/v1",
    "/v1/sandboxes/",
    "/v1/sandbox",
    "/v1/sandboxes/a/b/c",
    "/v1/sandboxes/a%00b/exec",
    "/%ff%fe",
    "/v1/sandboxes/../../etc/passwd",
    "/v1/api-keys/a%00b",
    "/health/",
])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_address_that_is_no_route(edge, method, path):
    refused(edge.api.open(path, method=method), 404, 405)


@pytest.mark.parametrize("name", [
    "a%F0%9F%92%A9", "%ED%A0%80", "'; DROP TABLE users; --", "x" * 4000, "%2e%2e", "NULL"])
@pytest.mark.parametrize(
    ("method", "tail"),
    [
        ("GET", ""), ("DELETE", ""), ("POST", "/hibernate"), ("POST", "/wake"),
        ("POST", "/snapshot"), ("POST", "/fork"), ("POST", "/extend"), ("GET", "/files?path=x"),
    ],
)
def test_an_odd_id_is_an_unknown_one(send, name, method, tail):
    refused(send(method, f"/v1/sandboxes/{name}{tail}", "api"), 404)


@pytest.mark.parametrize("query", [
    "limit=0",
    "limit=-1",
    "limit=x",
    "limit=1.5",
    "limit=",
    f"limit={'9' * 41}",
    "limit=%00",
    "limit=%D9%A1",
    "offset=-1",
    "offset=99999999999999999999",
    "offset=x",
    "status=none",
    "status=%00",
    "status=",
])
def test_a_bad_list_query(send, query):
    refused(send("GET", f"/v1/sandboxes?{query}", "api"), 400)


@pytest.mark.parametrize("query", ["", "path=", "path=a%00b", "path=" + "x" * 5000])
def test_a_bad_file_query(send, query):
    refused(send("GET", f"{SANDBOX}/files?{query}", "api"), 400)


def random_value(choose, depth=0):
    kinds = ["text", "number", "float", "flag", "null", "list", "object"]
    match choose.choice(kinds if depth < 4 else kinds[:5]):
        case "text":
            signs = [0, 9, 65, 0xE9, 0x202E, 0xD800, 0x1F4A9]
            return "".join(chr(choose.choice(signs)) for _ in range(choose.randrange(9)))
        case "number":
            return choose.choice([0, -1, 1, 1024, 3000, 65536, 2**31, 2**63, 2**64, -(2**70)])
        case "float":
            return choose.choice([0.5, -0.0, 1e308, 3.0, 1e-300])
        case "flag":
            return choose.choice([True, False])
        case "list":
            return [random_value(choose, depth + 1) for _ in range(choose.randrange(4))]
        case "object":
            return {
                random_value(choose, 9) if choose.random() < 0.1 else f"f{n}": random_value(
                    choose, depth + 1
                )
                for n in range(choose.randrange(4))
            }
    return None


FIELDS = [
    "ports", "env", "timeout", "size", "vcpus", "memMb", "templateId", "template",
    "gitRepositoryUrl", "gitRef", "preferredModel", "skipAppProcesses", "agentServerSource",
    "agentBootstrap", "idempotencyKey", "readinessPort", "restoreKind", "snapshotId", "sessionId",
    "projectId", "projectSlug", "appId", "startCommand", "cmd", "args", "cwd", "timeoutMs",
    "detached", "name", "expiresAt", "email", "password"
]


@ROUTES
@pytest.mark.parametrize("seed", range(5))
def test_random_bodies_never_break_anything(send, method, path, host, seed):
    choose = random.Random(f"{path} {seed}")
    for _ in range(20):
        body = {choose.choice(FIELDS): random_value(choose) for _ in range(choose.randrange(1, 5))}
        answer = send(method, path, host, data=json.dumps(body), headers=JSON)
        assert answer.status_code < 500, (body, answer.text)
        if answer.status_code >= 400:
            assert list(answer.json) == ["error"]


def test_no_sandbox_was_made_by_a_refused_body(edge, send):
    with connection():
        before = Sandbox.select().count()
    for body in IN_AN_OBJECT.values():
        send("POST", "/v1/sandboxes", "api", data=json.dumps(body), headers=JSON)
    with connection():
        assert Sandbox.select().count() == before
