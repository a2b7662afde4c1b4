"""A stack of API and identity host, and more processes of either, as on other hosts."""
import http.client
import shlex
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg2

from bin.stack import free_ports, health
from bin.stack.site import ROOT
from tests.stack.operator import run_operator, told_operator
from tests.stack.waiting import until

POLL_S = 1
SETTINGS = {
    "SVC_DRIVER": "simulated", "SVC_IDENTITY_POLL_S": str(POLL_S), "SVC_KEY_PUBLISH_S": "6",
    "SVC_USER_JWT_S": "10"
}
NO_DEPLOY, SANDBOXES, KEYS = "/v1/deploys/none", "/v1/sandboxes", "/v1/api-keys"


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
        url = f"http://127.0.0.1:{free_ports.free_port(0)}"
        name = {"api": "SVC_API_BIND", "identity": "SVC_AUTH_BIND"}[what]
        environ = self.stack.env | {name: url.removeprefix("http://")}
        if what == "api":
            environ["SVC_SIGNING_KEYS_DIR"] = "/nonexistent"
        log = self.stack.site.data_dir / "log" / f"{what}-{len(self._more) + 2}.log"
        with log.open("w") as stream:
            command = [
                "gunicorn", "-c", f"config/gunicorn/{what}.py", f"app.{what}.factory:create_app()"
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
        return told_operator(self.stack.env, *shlex.split(command))

    def mint(self, name):
        return tuple(
            line.split(" ", 1)[1]
            for line in self.operator(f"service-token-mint {name}").splitlines())

    def log_of(self, name):
        return (self.stack.site.data_dir / "log" / f"{name}.log").read_text()


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


def execute(site, statement, values=None):
    connection = psycopg2.connect(site.stack.site.values["SVC_DATABASE_URL"])
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchone()[0] if cursor.description else None
    finally:
        connection.close()


def attempt(site, command):
    _, printed, complaint = run_operator(site.stack.env, "keys", *shlex.split(command))
    return printed + complaint


def refused(site, command):
    text = attempt(site, command)
    assert text.startswith("Error: "), text
    return text
