"""A running stack as the maker of credentials needs it: HTTP and operator's commands only, as
anybody would use it."""
import time

import httpx

from app.identity.signing_keys import KeyDirectory
from tests.stack.conformance import Conformance
from tests.stack.credentials import bearer
from tests.stack.operator import told_operator


def _body(answer):
    return answer.json() if answer.headers.get("Content-Type") == "application/json" else None


class RealService:
    """The processes of a stack, by HTTP and operator's commands only."""

    def __init__(self, stack):
        self.stack = stack
        self.issuer = stack.auth_url
        self._clients = {host: httpx.Client(base_url=url, timeout=60, trust_env=False)
                         for host, url in (("api", stack.api_url), ("identity", stack.auth_url))}
        for client in self._clients.values():
            promised = Conformance(client.get("/openapi.json").json())
            client.event_hooks = {"response": [promised.check_httpx]}

    def send(self, host, method, path, headers, body=None):
        client = self._clients[host]
        client.cookies.clear()
        answer = client.request(method, path, headers=headers, json=body)
        return answer.status_code, _body(answer), answer.headers.get("set-cookie", "")

    def make_user(self, email, password):
        self._operator("user-create", email, "--plan", "legacy_pro", "--password", password)

    def mint_of(self, email):
        return self.mint(email, "--user")[1]

    def mint(self, name, *options):
        printed = self._operator("service-token-mint", name, *options).splitlines()
        return tuple(
            line.split(" ", 1)[1] for line in printed if line.startswith(("jti ", "token ")))

    def _operator(self, *words):
        return told_operator(self.stack.env, *words)

    def signing_key(self):
        return KeyDirectory(self.stack.settings.signing_keys_dir).get_signing()

    def make_things(self, owner):
        headers = bearer(owner.key)
        status, made, _ = self.send("api", "POST", "/v1/sandboxes", headers, {})
        assert status == 201, made
        path = f"/v1/sandboxes/{made['id']}"
        deadline = time.monotonic() + 60
        while self.send("api", "GET", path, headers)[1]["status"] != "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        status, snapshot, _ = self.send("api", "POST", f"{path}/snapshot", headers, {})
        assert status == 201, snapshot
        published = self.send("api", "POST", "/v1/templates/standing/latest", headers,
                              {"snapshotId": snapshot["id"]})
        assert published[0] == 201, published
        assert self.send("api", "DELETE", path, headers)[0] == 200
        return {"sandbox_id": made["id"], "snapshot_id": snapshot["id"]}

    def close(self):
        for client in self._clients.values():
            client.close()
