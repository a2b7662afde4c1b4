"""Identity across processes: key rotation, revocation and throttles with several API and identity
processes, and the identity host going away. The API processes here have no key directory: they know
only what is published."""
import http.client
import json
import os
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import jwt
import psycopg2
import pytest

from app.http.identity_mirror import REFETCH_S
from bin.stack import health, ports
from bin.stack.running import private_stack
from bin.stack.site import ROOT
from services.accounts.sign_in_throttle import PAIR_TRIES, WINDOW
from tests.stack.credentials import bearer

POLL_S = 1
SETTINGS = {
    "SVC_DRIVER": "simulated", "SVC_IDENTITY_POLL_S": str(POLL_S), "SVC_KEY_PUBLISH_S": "10",
    "SVC_USER_JWT_S": "15"
}
MODELS, SANDBOXES, KEYS = "/v1/models", "/v1/sandboxes", "/v1/api-keys"


class Site:
    """The stack's own API and identity host, and more processes of either, as on other hosts."""

    def __init__(self, stack):
        self.stack = stack
        self.people = stack.people
        self._more = []
        # Safe to share between threads; making one takes longer than a request.
        self.client = httpx.Client(timeout=60, trust_env=False)
        self._browsers = []

    def start(self, what):
        """Another API or identity process on a port of its own; the API's has no keys. Returns its
        URL."""
        url = f"http://127.0.0.1:{ports.free_port(0)}"
        name = {"api": "SVC_API_BIND", "identity": "SVC_AUTH_BIND"}[what]
        environ = self.stack.env | {name: url.removeprefix("http://")}
        if what == "api":
            environ["SVC_SIGNING_KEYS_DIR"] = "/nonexistent"
        log = self.stack.site.data_dir / "log" / f"{what}-{len(self._more) + 2}.log"
        with log.open("w") as stream:
            command = [
                "gunicorn", "-c", f"config/gunicorn_{what}.py", f"app.{what}.factory:create_app()"
            ]
            self._more.append(
                subprocess.Popen(command, cwd=ROOT, env=environ, stdout=stream, stderr=stream))
        until(lambda: health.answers(f"{url}/health"))
        return url

    def close(self):
        for client in (self.client, *self._browsers):
            client.close()
        for process in self._more:
            process.terminate()
        for process in self._more:
            process.wait(30)

    def sign_in(self, name="ALICE", url=None):
        browser = httpx.Client(base_url=url or self.stack.auth_url, timeout=30, trust_env=False)
        self._browsers.append(browser)
        body = {
            "email": self.people[f"SVC_{name}_EMAIL"],
            "password": self.people[f"SVC_{name}_PASSWORD"]
        }
        browser.post("/login", json=body).raise_for_status()
        return browser

    def operator(self, command):
        return self.stack.run(f"python -m app.{command}")

    def mint(self, name):
        return tuple(
            line.split(" ", 1)[1]
            for line in self.operator(f"admin service-token-mint {name}").splitlines())

    def log_of(self, name):
        return (self.stack.site.data_dir / "log" / f"{name}.log").read_text()


def until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def token_of(browser):
    return browser.post("/token", json={"appId": "dashboard"}).raise_for_status().json()["token"]


def statuses(url, headers, path=SANDBOXES, count=12):
    """What several requests over connections of their own get: enough to meet every worker
    process."""
    def ask(_):
        link = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        try:
            link.request("GET", path, headers=headers)
            return link.getresponse().status
        finally:
            link.close()

    with ThreadPoolExecutor(6) as pool:
        return Counter(pool.map(ask, range(count)))


@pytest.fixture(scope="module")
def site(clean_host):
    stack = private_stack("test-identity", SETTINGS, processes=("api", "identity"))
    try:
        stack.start_servers()
        stack.prepare()
        stack.start("api", "identity")
        until(
            lambda: health.answers(f"{stack.api_url}/health")
            and health.answers(f"{stack.auth_url}/health")
        )
        stack.seed()
        made = Site(stack)
        try:
            yield made
        finally:
            made.close()
    finally:
        stack.destroy()


@pytest.fixture(scope="module")
def apis(site):
    """Two API hosts with two worker processes each; the second has no key directory."""
    return site.stack.api_url, site.start("api")


def test_an_api_host_needs_no_key_directory(site, apis):
    token = bearer(token_of(site.sign_in()))
    service = bearer(site.people["SVC_SERVICE_TOKEN"])
    for url in apis:
        assert statuses(url, token) == {200: 12}
        assert statuses(url, service, MODELS) == {501: 12}


def test_seeding_again_replaces_only_what_stopped_working(site):
    before = dict(site.stack.people)
    execute(site, "UPDATE api_keys SET revoked_at = now() WHERE name = 'development'")
    site.stack.seed()
    after = site.people = site.stack.people
    assert {name for name in before if before[name] != after[name]} == {"SVC_API_KEY"}


def test_a_revoked_key_is_refused_by_the_next_request_on_every_process(site, apis):
    dashboard = bearer(token_of(site.sign_in("BOB")))
    made = site.client.post(apis[0] + KEYS, json={"name": "short"}, headers=dashboard).json()
    key = bearer(made["key"])
    assert [statuses(url, key) for url in apis] == [{200: 12}] * 2
    ended = site.client.delete(f"{apis[1]}{KEYS}/{made['apiKey']['id']}", headers=dashboard)
    assert ended.status_code == 200
    assert [statuses(url, key) for url in apis] == [{401: 12}] * 2


def test_the_limit_of_keys_is_exact_over_processes_and_retry_after_is_true(site, apis):
    dashboard = bearer(token_of(site.sign_in("MALLORY")))

    def create(number):
        return site.client.post(apis[number % 2] + KEYS, json={"name": "many"}, headers=dashboard,
                                timeout=30)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(create, range(24)))
    assert Counter(answer.status_code for answer in answers) == {201: 5, 429: 19}
    wait_s = min(
        int(answer.headers["Retry-After"]) for answer in answers if answer.status_code == 429)
    assert 3000 < wait_s <= 3600
    age = (
        "UPDATE api_keys SET created_at = created_at - %s * interval '1 second' WHERE name = 'many'"
    )
    execute(site, age, (wait_s - 5,))
    dashboard = bearer(token_of(site.sign_in("MALLORY")))
    refused = create(0)
    assert refused.status_code == 429 and int(refused.headers["Retry-After"]) <= 5
    time.sleep(int(refused.headers["Retry-After"]))
    dashboard = bearer(token_of(site.sign_in("MALLORY")))
    assert create(1).status_code == 201


def test_use_of_a_key_is_written_once_a_minute_however_many_processes_see_it(site, apis):
    execute(
        site,
        """
        CREATE TABLE seen_uses (key_id text);
        CREATE FUNCTION note_use() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO seen_uses VALUES (NEW.id); RETURN NEW; END';
        CREATE TRIGGER note_use AFTER UPDATE OF last_used_at ON api_keys
            FOR EACH ROW EXECUTE FUNCTION note_use()""",
    )
    dashboard = bearer(token_of(site.sign_in("BOB")))
    made = site.client.post(apis[0] + KEYS, json={"name": "used"}, headers=dashboard).json()

    def uses():
        return execute(site, "SELECT count(*) FROM seen_uses WHERE key_id = %s",
                       (made["apiKey"]["id"], ))

    for url in apis * 2:
        assert statuses(url, bearer(made["key"]), count=24) == {200: 24}
    assert uses() == 1
    execute(
        site,
        "UPDATE api_keys SET last_used_at = last_used_at - interval '61 seconds' WHERE id = %s",
        (made["apiKey"]["id"], ))
    assert uses() == 2  # the line above
    for url in apis:
        statuses(url, bearer(made["key"]), count=24)
    assert uses() == 3


def execute(site, statement, values=None):
    connection = psycopg2.connect(site.stack.site.values["SVC_DATABASE_URL"])
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchone()[0] if cursor.description else None
    finally:
        connection.close()


def test_a_revoked_service_token_is_refused_everywhere_soon(site, apis):
    _, admin = site.mint("admin")
    jti, text = site.mint("short-lived")
    service = bearer(text)
    assert [statuses(url, service, MODELS) for url in apis] == [{501: 12}] * 2
    answer = site.client.post(f"{site.stack.auth_url}/admin/service-token/revoke",
                              json={"jti": jti}, headers=bearer(admin))
    assert answer.status_code == 200 and answer.json()["serviceToken"]["revokedAt"]
    listed = site.client.get(f"{site.stack.auth_url}/tokens/revoked")
    assert jti in listed.json()["jtis"] and listed.headers["Cache-Control"] == "public, max-age=10"
    began = time.monotonic()
    until(lambda: [statuses(url, service, MODELS) for url in apis] == [{401: 12}] * 2, 20)
    print(
        f"revocation was known everywhere after {time.monotonic() - began:.2f} s, polling every"
        f" {POLL_S} s"
    )
    assert statuses(apis[0], bearer(site.people["SVC_SERVICE_TOKEN"]), MODELS) == {501: 12}


def test_the_identity_host_may_go_away(site, apis):
    jti, text = site.mint("to-be-revoked")
    site.operator(f"admin service-token-revoke {jti}")
    until(lambda: statuses(apis[0], bearer(text), MODELS) == {401: 12}, 20)
    service = bearer(site.people["SVC_SERVICE_TOKEN"])
    site.stack.stop("identity")
    try:
        late = site.start("api")
        time.sleep(3 * POLL_S)
        assert statuses(apis[0], service, MODELS) == {501: 12}
        assert statuses(apis[0], bearer(text), MODELS) == {401: 12}, "the stale list counts"
        assert "ALARM: the identity host does not answer" in site.log_of("api")
        assert statuses(apis[0], bearer(site.people["SVC_API_KEY"])) == {200: 12}
        # A process that never saw the identity host cannot tell good from bad; keys it can.
        answer = site.client.get(late + MODELS, headers=service)
        assert answer.status_code == 503 and answer.headers["Retry-After"]
        assert statuses(late, bearer(site.people["SVC_API_KEY"])) == {200: 12}
        assert site.client.get(late + SANDBOXES, headers=bearer("nonsense")).status_code == 401
    finally:
        site.stack.start("identity")
    until(lambda: health.answers(f"{site.stack.auth_url}/health"))
    until(lambda: statuses(late, service, MODELS) == {501: 12}, 20)
    assert "the identity host answers" in site.log_of("api")


def test_made_up_key_ids_do_not_reach_the_identity_host_one_by_one(site, apis):
    token = token_of(site.sign_in())
    body, signature = token.split(".")[1:]

    def asked():
        return site.log_of("identity").count("/.well-known/jwks.json")

    def strange(number):
        header = jwt.utils.base64url_encode(
            json.dumps({"alg": "EdDSA", "kid": f"made-up-{number}"}).encode()).decode()
        return site.client.get(
            apis[0] + SANDBOXES, headers=bearer(f"{header}.{body}.{signature}")).status_code

    before, began = asked(), time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(strange, range(200))) == {401}
    took_s = time.monotonic() - began
    # Two hosts (and the late one) with two workers each poll; what 200 strangers add is a few.
    polls = 6 * (took_s / POLL_S + 2)
    assert asked() - before <= polls + 2 * (took_s / REFETCH_S + 2) < 200


def test_sign_ins_are_throttled_over_processes(site):
    identities = site.stack.auth_url, site.start("identity")
    site.operator("admin user-create guessed@example.test --password 'the right one'")
    body = {"email": "guessed@example.test", "password": "a wrong one"}
    began = time.monotonic()

    def guess(number):
        return site.client.post(f"{identities[number % 2]}/login", json=body)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(guess, range(40)))
    counted = Counter(answer.status_code for answer in answers)
    refilled = int((time.monotonic() - began) / (WINDOW.total_seconds() / PAIR_TRIES)) + 1
    assert set(counted) == {401, 429
                            } and PAIR_TRIES <= counted[401] < PAIR_TRIES + refilled + 1, counted
    assert all(0 < int(answer.headers["Retry-After"]) <= WINDOW.total_seconds()
               for answer in answers if answer.status_code == 429)
    right = site.client.post(f"{identities[1]}/login", json=body | {"password": "the right one"})
    assert right.status_code == 429
    site.sign_in("ALICE", identities[1]).close()


class Traffic(threading.Thread):
    """A user at work: a fresh token every second, requests with it on every API host, what fails is
    kept."""

    def __init__(self, site, apis):
        super().__init__(daemon=True)
        self.site, self.apis = site, apis
        self.ended = threading.Event()
        self.failures, self.kids, self.count = [], Counter(), 0

    def run(self):
        browser = self.site.sign_in()
        client = self.site.client
        service = bearer(self.site.people["SVC_SERVICE_TOKEN"])
        while not self.ended.is_set():
            token = token_of(browser)
            self.kids[jwt.get_unverified_header(token)["kid"]] += 1
            fresh_until = time.monotonic() + 1
            while time.monotonic() < fresh_until:
                for url in self.apis:
                    for headers, path, wanted in ((bearer(token), SANDBOXES, 200), (service, MODELS,
                                                                                    501)):
                        answer = client.get(url + path, headers=headers)
                        self.count += 1
                        if answer.status_code != wanted:
                            self.failures.append((path, answer.status_code, answer.text))


def test_a_signing_key_is_rotated_and_retired_without_one_failed_request(site, apis):
    old = site.operator("identity.keys list").split()[0]
    traffic = Traffic(site, apis)
    traffic.start()
    try:
        new = site.operator("identity.keys rotate").strip()
        listed = site.operator("identity.keys list")
        assert f"{old} EdDSA signing" in listed and f"{new} EdDSA published" in listed
        assert "about to sign" in refused(site, "rotate")
        assert "it signs" in listed and "it signs" not in listed.splitlines()[1]
        key_set = site.client.get(f"{site.stack.auth_url}/.well-known/jwks.json").json()
        published = {key["kid"] for key in key_set["keys"]}
        assert published == {old, new}
        until(lambda: traffic.kids[new] > 1, 30)
        assert "signs; rotate first" in refused(site, f"retire {new}")
        # Service tokens last a year: theirs is the last word on when the old key may go.
        assert "service token" in refused(site, f"retire {old}")
        _, successor = site.mint("development")
        traffic.ended.set()
        traffic.join(30)
        assert traffic.failures == [] and traffic.kids[old] and traffic.kids[new]
        print(f"rotated under {traffic.count} requests")
        last_of_old = site.people["SVC_SERVICE_TOKEN"]
        revoke_all_of(site, old)
        until(lambda: "retired" in attempt(site, f"retire {old}"), 30)
        until(lambda: all(statuses(url, bearer(last_of_old), MODELS) == {401: 12} for url in apis),
              20)
        assert [statuses(url, bearer(successor), MODELS) for url in apis] == [{501: 12}] * 2
        assert [statuses(url, bearer(token_of(site.sign_in()))) for url in apis] == [{200: 12}] * 2
    finally:
        traffic.ended.set()


def revoke_all_of(site, kid):
    for line in site.operator("admin service-token-list").splitlines():
        if kid in line:
            site.operator(f"admin service-token-revoke {line.split()[0]}")


def attempt(site, command):
    result = subprocess.run(["python", "-m", "app.operator.key_rotation", *command.split()],
                            cwd=ROOT, env=site.stack.env, capture_output=True, text=True,
                            timeout=60, check=False)
    return result.stdout + result.stderr


def refused(site, command):
    text = attempt(site, command)
    assert text.startswith("Error: "), text
    return text


def test_a_stolen_key_is_replaced_at_once(site, apis):
    _, stolen = site.mint("with-stolen-key")
    assert statuses(apis[0], bearer(stolen), MODELS) == {501: 12}
    old = next(line.split()[0]
               for line in site.operator("identity.keys list").splitlines()
               if " signing " in line)
    new = site.operator("identity.keys rotate --now").strip()
    # Nobody was told beforehand: the first token makes every process look, a moment later if it has
    # just looked.
    browser = site.sign_in()
    token = token_of(browser)
    assert jwt.get_unverified_header(token)["kid"] == new
    until(lambda: [statuses(url, bearer(token)) for url in apis] == [{200: 12}] * 2, 5 * REFETCH_S)
    assert "retired" in attempt(site, f"retire {old} --force")
    until(lambda: all(statuses(url, bearer(stolen), MODELS) == {401: 12} for url in apis), 20)
    assert os.listdir(site.stack.settings.signing_keys_dir) and not list(
        site.stack.settings.signing_keys_dir.glob(f"{old}*"))
