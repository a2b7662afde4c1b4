"""The few calls of the REST API that the figures need, made as a user would."""
from typing import Any

import httpx


class Api:
    """A client of one owner; every method raises httpx.HTTPStatusError on an error answer."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"},
                                  timeout=120)
        self.credential = f"Authorization: Bearer {key}"

    def _call(self, method: str, path: str, body: Any = None, prefer: str = "") -> Any:
        headers = {"Prefer": prefer} if prefer else {}
        answer = self._http.request(method, path, json=body, headers=headers)
        if answer.is_error:
            raise httpx.HTTPStatusError(f"{answer.status_code}: {answer.text}",
                                        request=answer.request, response=answer)
        return answer.json()

    def create(self, **body: Any) -> str:
        """Ask for a sandbox; returns its id at once."""
        return str(self._call("POST", "/v1/sandboxes", body)["id"])

    def create_running(self, **body: Any) -> str:
        """Ask for a sandbox, and wait as the service offers to until it runs; returns its id."""
        return self._make_running("/v1/sandboxes", body)

    def fork_running(self, sandbox_id: str) -> str:
        """The same for a fork."""
        return self._make_running(f"/v1/sandboxes/{sandbox_id}/fork", {})

    def _make_running(self, path: str, body: Any) -> str:
        made = self._call("POST", path, body, prefer="wait=60")
        if made["status"] != "running":
            raise RuntimeError(f"sandbox {made['id']} is {made['status']} after a minute")
        return str(made["id"])

    def get(self, sandbox_id: str) -> Any:
        """The sandbox."""
        return self._call("GET", f"/v1/sandboxes/{sandbox_id}")

    def act(self, sandbox_id: str, action: str) -> Any:
        """hibernate, wake or snapshot."""
        return self._call("POST", f"/v1/sandboxes/{sandbox_id}/{action}")

    def delete(self, sandbox_id: str) -> Any:
        """Tear down."""
        return self._call("DELETE", f"/v1/sandboxes/{sandbox_id}")

    def run(self, sandbox_id: str, *argv: str) -> Any:
        """Run a program and wait for it."""
        return self._call("POST", f"/v1/sandboxes/{sandbox_id}/exec",
                          {"cmd": argv[0], "args": list(argv[1:])})

    def start(self, sandbox_id: str, *argv: str) -> Any:
        """Start a program that goes on."""
        return self._call("POST", f"/v1/sandboxes/{sandbox_id}/exec",
                          {"cmd": argv[0], "args": list(argv[1:]), "detached": True})

    def preview(self, sandbox_id: str, port: int) -> str:
        """The preview URL of a port."""
        return str(self._call("GET", f"/v1/sandboxes/{sandbox_id}/url/{port}")["url"])
