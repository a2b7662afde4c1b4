"""Pages of the origins in SVC_BROWSER_ORIGINS may use both hosts from a browser; no other page is
told anything."""
import pytest

from tests.stack.edge import make_edge

ORIGIN = "https://dashboard.example.test"
OTHERS = [
    "https://evil.example.test", "null", "http://dashboard.example.test", f"{ORIGIN}:8443",
    f"{ORIGIN}.evil.test", f"{ORIGIN}evil", f"{ORIGIN}/", "https://xdashboard.example.test",
    "dashboard.example.test", "https://dashboardxexample.test", "*",
]
ALLOWED = ("Access-Control-Allow-Origin", "Access-Control-Allow-Credentials")
UPLOAD = "/v1/sandboxes/x/uploads/a.txt"


@pytest.fixture(scope="module")
def hosts(postgres_url, redis_url, tmp_path_factory):
    origins = (ORIGIN, "http://[::1]:5173")
    yield from make_edge(postgres_url, redis_url, tmp_path_factory.mktemp("keys"),
                         browser_origins=origins)


def preflight(client, path, method, origin):
    return client.options(path, headers={
        "Origin": origin, "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization, content-type",
        "Access-Control-Request-Private-Network": "true",
    })


@pytest.mark.parametrize("origin", [ORIGIN, "http://[::1]:5173"])
@pytest.mark.parametrize(("host", "path", "method"), [
    ("api", UPLOAD, "PUT"), ("api", "/v1/sandboxes", "POST"), ("api", "/v1/sandboxes", "GET"),
    ("api", "/v1/api-keys", "POST"), ("identity", "/token", "POST"), ("identity", "/login", "POST"),
])
def test_a_page_of_ours_may_send(hosts, host, path, method, origin):
    answer = preflight(getattr(hosts, host), path, method, origin)
    assert answer.status_code == 204 and answer.headers[ALLOWED[0]] == origin
    assert method in answer.headers["Access-Control-Allow-Methods"]
    headers = answer.headers["Access-Control-Allow-Headers"].lower()
    assert "authorization" in headers and "content-type" in headers
    assert answer.headers["Access-Control-Max-Age"] == "600" and "Origin" in answer.headers["Vary"]
    assert (answer.headers.get(ALLOWED[1]) == "true") is (host == "identity")
    assert answer.headers.get("Access-Control-Allow-Private-Network") != "true"


@pytest.mark.parametrize("origin", OTHERS)
def test_another_page_may_not(hosts, origin):
    for client, path in ((hosts.api, UPLOAD), (hosts.api, "/health"), (hosts.identity, "/token"),
                         (hosts.identity, "/login")):
        answer = preflight(client, path, "POST", origin)
        assert not set(ALLOWED) & set(answer.headers.keys()), path
        assert answer.status_code == (200 if path in ("/health", "/login") else 401)
        plain = client.get("/health", headers={"Origin": origin})
        assert not set(ALLOWED) & set(plain.headers.keys())


def test_a_page_of_ours_reads_answers_and_errors(hosts):
    user = hosts.user("alice")
    page = {"Origin": ORIGIN}
    listed = hosts.api.get("/v1/sandboxes", headers=hosts.jwt(user) | page)
    unknown = hosts.api.get("/v1/sandboxes/unknown", headers=hosts.jwt(user) | page)
    stranger = hosts.api.get("/v1/sandboxes", headers=page)
    signed_in = hosts.identity.post("/login", headers=page, json={
        "email": user.email, "password": hosts.people["SVC_ALICE_PASSWORD"]})
    token = hosts.identity.post("/token", json={"appId": "dashboard"}, headers=page)
    answers = (listed, unknown, stranger, signed_in, token)
    assert [answer.status_code for answer in answers] == [200, 404, 401, 200, 200]
    for answer in answers:
        assert answer.headers[ALLOWED[0]] == ORIGIN
        assert "X-Request-Id" in answer.headers["Access-Control-Expose-Headers"]


def test_nothing_is_said_where_no_origin_is_set(edge):
    for client in (edge.api, edge.identity):
        assert ALLOWED[0] not in preflight(client, "/health", "GET", ORIGIN).headers


@pytest.mark.parametrize(("host", "path"), [
    ("api", "/v1//sandboxes"), ("api", "//v1/sandboxes"), ("api", "/v1/sandboxes//x"),
    ("identity", "//login"), ("identity", "/tokens//revoked"), ("api", "/health/"),
])
def test_no_address_is_redirected_to_the_host_that_the_caller_names(edge, host, path):
    answer = getattr(edge, host).get(path, headers={"Host": "evil.example.test"})
    assert answer.status_code == 404 and "Location" not in answer.headers
