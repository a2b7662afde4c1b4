"""After a user's whole journey no secret stands in any log, in Redis or in Postgres."""
import gzip
import time

import psycopg2
import redis

from tests.stack.credentials import Newcomer, bearer, make_all
from tests.stack.real import RealService

SANDBOXES, CALLBACK_TOKEN = "/v1/sandboxes", "the-callback-token-of-one-session"


def in_postgres(url):
    """Every row of every table as text."""
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
            for (table,) in cursor.fetchall():
                cursor.execute(f'SELECT row_to_json(kept)::text FROM "{table}" AS kept')
                for (row,) in cursor.fetchall():
                    yield f"table {table}", row.encode()
    finally:
        connection.close()


def in_redis(url):
    """Every key with its value."""
    client = redis.Redis.from_url(url)
    try:
        for key in client.scan_iter():
            yield f"redis {key!r}", key + (client.dump(key) or b"")
        yield "redis slowlog", repr(client.slowlog_get(128)).encode()
    finally:
        client.close()


def in_logs(directory):
    for path in directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            yield f"log {path.name}", gzip.decompress(content) if path.suffix == ".gz" else content


def everything(stack):
    yield from in_logs(stack.site.data_dir / "log")
    yield from in_redis(stack.site.values["SVC_REDIS_URL"])
    yield from in_postgres(stack.site.values["SVC_DATABASE_URL"])


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
    client = redis.Redis.from_url(sim_stack.site.values["SVC_REDIS_URL"])
    try:
        client.set("test-secrets", "needle-in-a-haystack", ex=60)
        assert any(b"needle-in-a-haystack" in content for _, content in in_redis(
            sim_stack.site.values["SVC_REDIS_URL"]))
    finally:
        client.close()
