"""The shortest proof that a stack works: a sandbox is created, runs a command and is deleted, by
the public API."""
import time
from collections.abc import Callable

import httpx

from bin.console import Advice
from bin.stack.running import Stack


def smoke(stack: Stack, say: Callable[[str], None], timeout_s: float = 120) -> None:
    """Create, exec, delete; tells the times through `say`. Raises Advice with the answer that was
    wrong."""
    headers = {"Authorization": f"Bearer {stack.people['SVC_API_KEY']}"}
    with httpx.Client(base_url=stack.api_url, headers=headers, timeout=timeout_s,
                      trust_env=False) as api:
        began = time.monotonic()
        sandbox = _ok(api.post("/v1/sandboxes", json={}), 201)
        try:
            _wait_running(api, str(sandbox["id"]), timeout_s)
            say(f"  {sandbox['id']} runs after {time.monotonic() - began:.2f} s")
            result = _ok(
                api.post(f"/v1/sandboxes/{sandbox['id']}/exec",
                         json={"cmd": "echo", "args": ["ready"]}), 200)
            if result["stdout"] != "ready\n" or result["exitCode"] != 0:
                raise Advice(f"the smoke test's echo answered {result}.")
            say(f"  and has answered an exec after {time.monotonic() - began:.2f} s")
        finally:
            _ok(api.delete(f"/v1/sandboxes/{sandbox['id']}"), 200)


def _ok(answer: httpx.Response, status: int) -> dict[str, object]:
    if answer.status_code != status:
        request = answer.request
        raise Advice(
            f"{request.method} {request.url.path} answered {answer.status_code}:"
            f" {answer.text[:500]}. `make logs` shows what the processes say."
        )
    return dict(answer.json())


def _wait_running(api: httpx.Client, sandbox_id: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while (status := _ok(api.get(f"/v1/sandboxes/{sandbox_id}"), 200)["status"]) != "running":
        if status == "stopped" or time.monotonic() > deadline:
            raise Advice(
                f"sandbox {sandbox_id} is {status} instead of running; see var/log/node-ops.log.")
        time.sleep(0.05)
