"""The people of the tests: alice owns, bob is free, mallory is a stranger. Each speaks plain HTTP,
nothing else.

Every answer of the API that any of them gets is held to the OpenAPI document.
"""
import contextlib
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import httpx

from bin.stack import leftovers
from bin.stack.running import Stack
from tests.stack.conformance import Conformance
from tests.stack.memory import children

# How long an answer may take beside the time that the request itself asks for (seconds): a wake
# that boots from its disk and is waited for takes up to 120.
PATIENCE_S = 200


class Persona:
    """One user of a stack. Requests carry the user's API key unless other headers are given."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.stack = stack
        self.name = name.lower()
        self.email = stack.people[f"SVC_{name}_EMAIL"]
        self.password = stack.people[f"SVC_{name}_PASSWORD"]
        promised = Conformance(httpx.get(f"{stack.api_url}/openapi.json", trust_env=False).json())
        self.http = httpx.Client(base_url=stack.api_url, timeout=PATIENCE_S, trust_env=False,
                                 event_hooks={"response": [promised.check_httpx]})
        self._jwt = ("", 0.0)

    def close(self) -> None:
        """Let go of the connections."""
        self.http.close()

    def is_answered(self) -> bool:
        """True if the API answers, and none of its workers is left over from before a kill: that
        one would answer too, and might be gone before the next can be reached."""
        living = leftovers.processes_of(self.stack.site.data_dir)
        workers = {pid for pid, command in living.items() if "worker [svc-api]" in command}
        if workers <= set(children(self.stack.supervisor.pid("api"))):
            with contextlib.suppress(httpx.TransportError):
                return self.get("/v1/sandboxes").status_code == 200
        return False

    @property
    def jwt(self) -> str:
        """A fresh user JWT, by logging in as the dashboard does."""
        token, expires_at = self._jwt
        if time.time() > expires_at - 60:
            with httpx.Client(base_url=self.stack.auth_url, timeout=30, trust_env=False) as browser:
                browser.post("/login", json={"email": self.email,
                                             "password": self.password}).raise_for_status()
                answer = browser.post("/token",
                                      json={"appId": "dashboard"}).raise_for_status().json()
            self._jwt = token, _ = answer["token"], answer["expiresAt"] / 1000
        return token

    @cached_property
    def api_key(self) -> str:
        """An API key of this user; alice's is the one of dev.env, the others make one as the
        dashboard does."""
        if self.name == "alice":
            return self.stack.people["SVC_API_KEY"]
        headers = {"Authorization": f"Bearer {self.jwt}"}
        answer = self.http.post("/v1/api-keys", json={"name": "tests"},
                                headers=headers).raise_for_status()
        return str(answer.json()["key"])

    @property
    def key_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    @property
    def jwt_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.jwt}"}

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request with the API key; `options` are those of httpx."""
        return self.http.request(method, path, **{"headers": self.key_headers, **options})

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    def wait_for(self, sandbox_id: str, status: str, timeout_s: float = 240) -> dict[str, Any]:
        """Poll as a client would until the sandbox has `status`; an unexpected `stopped` fails at
        once."""
        deadline = time.monotonic() + timeout_s
        while True:
            body: dict[str, Any] = self.get(f"/v1/sandboxes/{sandbox_id}").raise_for_status().json()
            if body["status"] == status:
                return body
            assert (
                body["status"] != "stopped"
            ), f"{sandbox_id} stopped while waiting for {status}: {body}"
            assert time.monotonic(
            ) < deadline, f"{sandbox_id} is not {status} after {timeout_s} s: {body}"
            time.sleep(0.05)

    def create(self, **body: Any) -> dict[str, Any]:
        """Create a sandbox and wait until it runs."""
        answer = self.post("/v1/sandboxes", json=body)
        assert answer.status_code == 201, answer.text
        return self.wait_for(answer.json()["id"], "running")

    def write(self, sandbox_id: str, files: Mapping[str, str]) -> None:
        """Write files of text, by their paths in the sandbox's project."""
        for path, text in files.items():
            self.request("PUT", f"/v1/sandboxes/{sandbox_id}/uploads/{path}",
                         content=text.encode()).raise_for_status()

    def exec(self, sandbox_id: str, cmd: str, *args: str, **body: Any) -> dict[str, Any]:
        """Run a command to its end and return the exec result."""
        answer = self.post(f"/v1/sandboxes/{sandbox_id}/exec",
                           json={"cmd": cmd, "args": list(args), **body},
                           timeout=PATIENCE_S + body.get("timeoutMs", 0) / 1000)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())
