"""Every operation of the OpenAPI documents, tried with good and bad input one by one and in
sequences.

schemathesis sends to the real processes each boundary of each field, what breaks each rule, random
input of both kinds, missing and wrong credentials and methods, and sequences in which one call uses
what another answered. It fails for a status that is not declared, a body of another shape, accepted
nonsense, refused sense, and for any error of ours.
"""
import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

import httpx
import pytest

from bin.stack.site import ROOT
from tests.stack.credentials import Newcomer, bearer
from tests.stack.real import RealService

pytestmark = pytest.mark.slow

CONFIG = ROOT / "tests" / "contract" / "schemathesis.toml"
TIME_LIMIT_S = 280
EVERYTHING = "coverage,examples,fuzzing,stateful"
KEYS, SERVICES = "^/v1/api-keys", "^/v1/(deploys|models|messages)"


@dataclass(frozen=True)
class Role:
    """Whom schemathesis plays: the host, which paths it calls and the phases it goes through."""

    host: str
    paths: list[str]
    phases: str = EVERYTHING


ROLES = {
    "an API key": Role("api", ["--exclude-path-regex", f"{KEYS}|{SERVICES}"]),
    "a user token": Role("api", ["--include-path-regex", KEYS]),
    "a service": Role("api", ["--include-path-regex", SERVICES], "coverage"),
    "a session": Role("identity", ["--exclude-path-regex", "^/admin|^/logout"], "coverage"),
    "an administrator": Role("identity", ["--include-path-regex", "^/admin|^/logout"], "coverage"),
}


class Tried:
    """What came of playing a role: the exit code, what was printed, and how often each operation
    got each status."""

    def __init__(self, code, output, report):
        self.code, self.output = code, output
        self.statuses = Counter()
        for line in report.read_text().splitlines():
            finished = json.loads(line).get("ScenarioFinished")
            recorder = finished["recorder"] if finished else {}
            for case_id, interaction in recorder.get("interactions", {}).items():
                case = recorder["cases"][case_id]["value"]
                if interaction.get("response"):
                    self.statuses[
                        f"{case['method']} {case['path']}", interaction["response"]["status_code"]
                    ] += 1


class Player:
    """Plays each role once, with an account of its own, and takes everything away afterwards."""

    def __init__(self, stack, scratch):
        self.stack, self.scratch = stack, scratch
        self.service = RealService(stack)
        self.account = Newcomer(self.service, f"tried-{secrets.token_hex(4)}@example.test")
        self._tried = {}

    def headers(self, name):
        match name:
            case "an API key":
                return bearer(self.account.key)
            case "a user token":
                return bearer(self.account.jwt)
            case "a service":
                return bearer(self.service.mint("tried")[1]) | {"X-On-Behalf-Of": self.account.id}
            case "a session":
                return self.account.sign_in()[0]
        return bearer(self.service.mint("admin")[1])

    def play(self, name):
        if name not in self._tried:
            role, number = ROLES[name], len(self._tried)
            url = self.stack.api_url if role.host == "api" else self.stack.auth_url
            config, report = self.scratch / f"{number}.toml", self.scratch / f"{number}.ndjson"
            headers = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}"
                                for key, value in self.headers(name).items())
            # pinned to where the sandboxes are: any other node would end most calls with 421
            pin = json.dumps(self.stack.settings.node_id)
            config.write_text(
                f'headers = {{ {headers} }}\nparameters = {{ "X-Svc-Node" = {pin} }}\n'
                f"{CONFIG.read_text()}")
            done = subprocess.run([
                sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run",
                f"{url}/openapi.json", "--phases", role.phases, "--no-color", "--report", "ndjson",
                "--report-ndjson-path", report, *role.paths
            ], cwd=self.scratch, env=os.environ | {"NO_PROXY": "*"}, capture_output=True, text=True,
                                  check=False, timeout=TIME_LIMIT_S)
            self._tried[name] = Tried(done.returncode, done.stdout + done.stderr, report)
        return self._tried[name]

    def clean_up(self):
        headers = bearer(self.account.jwt)  # the keys are revoked by now
        with httpx.Client(base_url=self.stack.api_url, headers=headers, timeout=60,
                          trust_env=False) as client:
            while listed := client.get("/v1/sandboxes?limit=500").json()["sandboxes"]:
                for entry in listed:
                    client.delete(f"/v1/sandboxes/{entry['id']}")
        self.service.close()


@pytest.fixture(scope="module")
def player(sim_stack, tmp_path_factory):
    made = Player(sim_stack, tmp_path_factory.mktemp("schemathesis"))
    yield made
    made.clean_up()


@pytest.mark.parametrize("name", ROLES)
def test_the_promises_hold(player, name):
    tried = player.play(name)
    assert tried.code == 0, tried.output[-20_000:]


def test_no_operation_is_left_out(player):
    for host, url in (("api", player.stack.api_url), ("identity", player.stack.auth_url)):
        tried = {
            label
            for name, role in ROLES.items() if role.host == host
            for label, _ in player.play(name).statuses
        }
        paths = httpx.get(f"{url}/openapi.json", trust_env=False).json()["paths"]
        shown = {
            f"{method.upper()} {path}" for path, methods in paths.items() for method in methods
        }
        assert shown - {"GET /openapi.json"} <= tried  # that is where it reads what to try


def test_sandboxes_go_through_their_whole_lives(player):
    """Without this, everything could have ended in refusals."""
    one, done = "/v1/sandboxes/{sandbox_id}", set()
    for label, status in player.play("an API key").statuses:
        if status < 300:
            done.add(label)
    for labels in (
        {"POST /v1/sandboxes"}, {"GET /v1/sandboxes"}, {f"GET {one}"}, {f"POST {one}/exec"},
        {f"POST {one}/files"}, {f"POST {one}/hibernate", f"POST {one}/pause"},
        {f"POST {one}/wake", f"POST {one}/resume"}, {f"POST {one}/snapshot"},
        {f"POST {one}/fork", "POST /v1/sandboxes/fork"}, {f"DELETE {one}"},
    ):
        assert labels & done, f"{labels}: never done"
