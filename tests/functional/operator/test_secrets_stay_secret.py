"""After a user's whole journey no secret stands in any log, in Redis or in Postgres."""
import time

import pytest
import redis
from kombu.connection import Connection

from tests.host.written import everything, in_redis
from tests.stack.credentials import Newcomer, bearer, make_all
from tests.stack.real import RealService

SANDBOXES, CALLBACK_TOKEN = "/v1/sandboxes", "the-callback-token-of-one-session"


def serve_an_agent(service, owner):
    """The life of a sandbox with an agent server and of a fork: its callback token is kept in one
    place, until it stops."""
    def call(method, path, body=None):
        return service.send("api", method, f"{SANDBOXES}{path}", bearer(owner.key), body)

    bootstrap = {"callbackUrl": "https://dashboard.example/", "callbackToken": CALLBACK_TOKEN}
    body = {"agentServerSource": "serve", "agentBootstrap": bootstrap, "idempotencyKey": "agent"}
    _, made, _ = call("POST", "", body)
    while call("GET", f"/{made['id']}")[1]["status"] == "provisioning":
        time.sleep(0.05)
    shown = [
        call("POST", "", body), call("POST", "", {**body, "timeout": 5}),
        call("GET", f"/{made['id']}"),
        call("POST", "", {"agentBootstrap": {**bootstrap, "callbackUrl": "http://10.0.0.1/"}}),
        call("POST", "", {"agentBootstrap": {**bootstrap, "callbackToken": CALLBACK_TOKEN + "\n"}}),
    ]
    assert [status for status, _, _ in shown] == [201, 409, 200, 400, 400
                                                  ] and CALLBACK_TOKEN not in str(shown)
    _, fork, _ = call("POST", f"/{made['id']}/fork")
    kept = {
        place for place, content in everything(service.stack) if CALLBACK_TOKEN.encode() in content
    }
    assert kept == {"table agent_servers"}
    for sandbox in (made, fork):
        assert call("DELETE", f"/{sandbox['id']}")[1]["status"] == "stopped"


def journey(service):
    """Use every credential there is, rightly, wrongly and in the wrong places; returns all that was
    secret."""
    owner, other = Newcomer(service, "keeper@example.test"), Newcomer(service, "prier@example.test")
    credentials = make_all(service, owner, other)
    _, made, _ = service.send("api", "POST", SANDBOXES, bearer(owner.key),
                              {"idempotencyKey": "journey"})
    for headers in credentials.values():
        service.send("api", "GET", f"{SANDBOXES}/{made['id']}", headers)
        secret = headers.get("Authorization", headers.get("Cookie", "")).split(" ")[-1]
        # In a query, where the shell takes it, and in places where no credential belongs.
        service.send("api", "GET", f"{SANDBOXES}/{made['id']}?access_token={secret}", {})
        service.send("identity", "POST", "/login", {},
                     {"email": owner.email, "password": secret[:250]})
        service.send("identity", "POST", "/token", headers, {"appId": 5})
    service.send("identity", "POST", "/login", {},
                 {"email": owner.email, "password": owner.password + "!"})
    service.send("api", "DELETE", f"{SANDBOXES}/{made['id']}", bearer(owner.key))
    serve_an_agent(service, owner)
    secrets = {
        kind: headers.get("Authorization", headers.get("Cookie", ""))
        .split(" ")[-1]
        .split("=", 1)[-1]
        for kind, headers in credentials.items()
    }
    for known in ("none", "malformed", "another scheme"):
        del secrets[known]
    secrets["callback token"] = CALLBACK_TOKEN
    return secrets | {
        "password": owner.password,
        "session secret": service.stack.site.values["SVC_SESSION_SECRET"],
        "guest secret": service.stack.site.values["SVC_GUEST_SECRET"]
    }


@pytest.mark.slow
def test_no_secret_is_written_anywhere(sim_stack):
    service = RealService(sim_stack)
    try:
        secrets = journey(service)
    finally:
        service.close()
    stack_secrets = {name: value for name, value in sim_stack.people.items()
                     if name.endswith(("_PASSWORD", "_KEY", "_TOKEN"))}
    found, looked_at = [], 0
    for place, content in everything(sim_stack):
        looked_at += 1
        found += [f"{name} in {place}" for name, secret in (secrets | stack_secrets).items()
                  if secret.encode() in content]
    assert found == [] and looked_at > 20 and len(secrets) > 25


def test_the_search_would_find_one(sim_stack, tmp_path):
    email = sim_stack.people["SVC_ALICE_EMAIL"].encode()
    assert any(
        email in content for place, content in everything(sim_stack) if place.startswith("table"))
    assert any(b"GET /v1/sandboxes" in content
               for place, content in everything(sim_stack)
               if place.startswith("log"))
    url, needle = sim_stack.site.values["SVC_REDIS_URL"], b"needle-in-a-haystack"
    client = redis.Redis.from_url(url)
    try:
        client.set("test-secrets", needle * 50, ex=60)
        with Connection(url) as link, link.SimpleQueue("test-secrets-queue") as queue:
            queue.put({"secret": needle.decode()}, retry=False)
        found = {place for place, content in in_redis(url) if needle in content}
        assert found == {"redis b'test-secrets'", "redis b'test-secrets-queue'"}
    finally:
        client.delete("test-secrets", "test-secrets-queue")
        client.close()
