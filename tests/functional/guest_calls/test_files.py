"""POST and GET /v1/sandboxes/{id}/files through every process, with simulated guests; with a real
guest agent where it is about modes, which simulated guests do not have."""
import base64

import httpx
import pytest

from models.database import connection
from models.sandboxes import Sandbox
from tests.host.agent_process import TOKEN


@pytest.fixture(scope="module")
def sandbox(alice):
    made = alice.create()
    yield made["id"]
    alice.delete(f"/v1/sandboxes/{made['id']}")


def item(path, content, **more):
    return {"path": path, "content": base64.b64encode(content).decode(), "mode": 0o644} | more


def write(persona, sandbox, *items):
    return persona.post(f"/v1/sandboxes/{sandbox}/files", json=list(items))


def read(persona, sandbox, path):
    return persona.get(f"/v1/sandboxes/{sandbox}/files", params={"path": path})


def test_what_was_written_is_read(alice, sandbox):
    content = bytes(range(256)) * 40
    answer = write(alice, sandbox, item("/data/a", content), item("/data/ü b", b""))
    assert answer.status_code == 204 and answer.content == b""
    got = read(alice, sandbox, "/data/a")
    assert got.status_code == 200 and got.json().keys() == {"content"}
    assert base64.b64decode(got.json()["content"]) == content
    assert read(alice, sandbox, "/data/ü b").json() == {"content": ""}


def test_the_mode_is_what_was_asked_for(edge, running_id, agent):
    with connection():
        Sandbox.update(agent_port=agent.port, agent_token=TOKEN).where(
            Sandbox.id == running_id).execute()
    path, headers = f"/v1/sandboxes/{running_id}", edge.key(edge.user("alice"))
    unsaid = {"path": "unsaid", "content": ""}
    batch = [item("program", b"#!/bin/sh\n", mode=0o755), item("key", b"", mode=0o600), unsaid]
    assert edge.api.post(f"{path}/files", json=batch, headers=headers).status_code == 204
    shown = edge.api.post(f"{path}/exec", headers=headers, json={
        "cmd": "stat", "args": ["-c", "%a", "program", "key", "unsaid"]})
    assert shown.json["stdout"].split() == ["755", "600", "644"], shown.json


def test_an_empty_batch_is_fine(alice, sandbox):
    assert write(alice, sandbox).status_code == 204


def test_a_large_file_goes_through_in_both_directions(alice, sandbox):
    content = b"\0\xff" * (5 * 1024 * 1024)
    assert write(alice, sandbox, item("/data/large", content)).status_code == 204
    assert base64.b64decode(read(alice, sandbox, "/data/large").json()["content"]) == content


def test_a_missing_file_is_404(alice, sandbox):
    answer = read(alice, sandbox, "/data/none")
    assert answer.status_code == 404 and "/data/none" in answer.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        {}, {"path": "/a"}, [{"path": "/a"}], [{"path": "/a", "content": "not base64!"}],
        [{"content": ""}], ["x"], [[]], [None], [{"path": "", "content": ""}],
        [{"path": "/a", "content": "", "mode": -1}], [{"path": "/a", "content": "", "x": 1}],
        [{"path": "/a", "content": ""}] * 1001,
    ],
)
def test_a_bad_batch_is_400_and_writes_nothing(alice, sandbox, body):
    if isinstance(body, list) and body and isinstance(body[0], dict) and len(body) < 1001:
        body = [item("/data/first", b"x"), *body]
    answer = alice.post(f"/v1/sandboxes/{sandbox}/files", json=body)
    assert answer.status_code == 400, answer.text
    assert read(alice, sandbox, "/data/first").status_code == 404


def test_the_item_that_is_wrong_is_named(alice, sandbox):
    answer = write(alice, sandbox, item("/a", b""), item("/b", b"", mode="0644"))
    assert answer.status_code == 400 and answer.json()["error"].startswith("1.mode")


def test_a_sleeping_sandbox_is_409(alice):
    made = alice.create()["id"]
    alice.post(f"/v1/sandboxes/{made}/hibernate")
    assert write(alice, made, item("/a", b"x")).status_code == 409
    assert read(alice, made, "/a").status_code == 409
    alice.delete(f"/v1/sandboxes/{made}")


def test_a_stranger_reads_and_writes_nothing(alice, mallory, sandbox):
    write(alice, sandbox, item("/data/secret", b"x"))
    assert read(mallory, sandbox, "/data/secret").status_code == 403
    assert write(mallory, sandbox, item("/data/secret", b"y")).status_code == 403
    assert base64.b64decode(read(alice, sandbox, "/data/secret").json()["content"]) == b"x"


def endless(size):
    for _ in range(size // 65536):
        yield b" " * 65536


@pytest.mark.parametrize("path", ["/files", "/exec"])
def test_a_body_of_100_mb_is_413_announced_or_not(sim_stack, alice, sandbox, path):
    url = f"/v1/sandboxes/{sandbox}{path}"
    headers = alice.key_headers | {"Content-Type": "application/json"}
    size = 100 * 1024 * 1024
    for extra in ({"Content-Length": str(size)}, {}):
        with httpx.Client(base_url=sim_stack.api_url, timeout=60, trust_env=False) as client:
            try:
                answer = client.post(url, content=endless(size), headers=headers | extra)
            except (httpx.WriteError, httpx.RemoteProtocolError):
                # The server may answer and hang up before it has been sent everything.
                continue
            assert answer.status_code == 413 and list(answer.json()) == ["error"]
    assert alice.get(f"/v1/sandboxes/{sandbox}").status_code == 200
