"""What a service does with deploys: publishes for alice, looks, removes."""
from typing import Any

import httpx

from bin.stack.running import Stack
from tests.stack.database import query
from tests.stack.personas import Persona
from tests.stack.waiting import until


class Deploys:
    """The deploy surface of a stack, as its service calls it on behalf of a persona."""

    def __init__(self, stack: Stack, persona: Persona) -> None:
        self.stack, self.persona = stack, persona
        (owner_id,), = query(stack, "SELECT id FROM users WHERE email = %s", persona.email)
        token = stack.people["SVC_SERVICE_TOKEN"]
        self.headers = {"Authorization": f"Bearer {token}", "X-On-Behalf-Of": owner_id}

    def request(self, method: str, path: str = "", **options: Any) -> httpx.Response:
        """Call a route below /v1/deploys."""
        return self.persona.request(method, f"/v1/deploys{path}", headers=self.headers, **options)

    def publish(self, slug: str, snapshot_id: str, **body: Any) -> dict[str, Any]:
        """Deploy a snapshot, and wait for the end unless it is `async`."""
        answer = self.request("POST", timeout=960, json={
            "slug": slug, "snapshotId": snapshot_id, "runId": "run", **body})
        assert answer.status_code in (200, 202), answer.text
        return dict(answer.json())

    def publish_patiently(self, slug: str, snapshot_id: str, timeout_s: float = 800,
                          **body: Any) -> dict[str, Any]:
        """Deploy a snapshot, and return the app once that has ended, however slow the host is."""
        begun = self.publish(slug, snapshot_id, **{**body, "async": True})
        ended = "SELECT 1 FROM deploy_runs WHERE app_id = %s AND version = %s" \
                " AND finished_at IS NOT NULL"
        until(lambda: query(self.stack, ended, begun["appId"], begun["version"]), timeout_s)
        return self.get(slug)

    def get(self, slug: str) -> dict[str, Any]:
        """The app as it is."""
        return dict(self.request("GET", f"/{slug}").raise_for_status().json())

    def log(self, slug: str) -> str:
        """What the last deploy said."""
        return self.request("GET", f"/{slug}/log").raise_for_status().text

    def remove(self, slug: str) -> None:
        """Remove the app."""
        self.request("DELETE", f"/{slug}").raise_for_status()
