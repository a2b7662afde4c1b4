"""PUT /v1/sandboxes/{id}/uploads/{path...} through every process; with a real guest agent where it
is about size."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import time
from urllib.parse import urlsplit

import psycopg2
import pytest

from bin.stack.free_ports import free_port
from tests.host.agent_process import TOKEN
from tests.stack.memory import Watch, children
from tests.stack.processes import Process
from tests.stack.raw_http import request as raw_request
from tests.stack.raw_http import statuses, talk

MIB = 1024**2
NARROW_BYTES = 300_000
MEMORY_LIMIT_BYTES = 200 * 10**6


@pytest.fixture(scope="module")
def sandbox(alice):
    made = alice.create()["id"]
    yield made
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture(scope="module")
def beside(sim_stack, tmp_path_factory):
    """Makes API processes beside that of the stack, with another limit for uploads; returns process
    and URL."""
    with contextlib.ExitStack() as stack:

        def make(limit_bytes, **more):
            url = f"http://127.0.0.1:{free_port(0)}"
            values = {
                "SVC_API_URL": url, "SVC_API_WORKERS": "1",
                "SVC_UPLOAD_MAX_BYTES": str(limit_bytes), **more
            }
            log = tmp_path_factory.mktemp("api") / "log"
            process = stack.enter_context(Process(sim_stack, "api", values, log))
            deadline = time.monotonic() + 30
            while True:
                with contextlib.suppress(OSError), contextlib.closing(connect(url)) as link:
                    link.request("GET", "/health")
                    if link.getresponse().status == 200:
                        return process, url
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)

        yield make


@pytest.fixture(scope="module")
def narrow(beside):
    """URL of an API that takes uploads of at most NARROW_BYTES and has no patience."""
    return beside(NARROW_BYTES, SVC_BODY_SILENCE_S="0.5")[1]


def connect(url):
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)


def put(url, persona, path, content=b"", **headers):
    """Status and body of a PUT to exactly this path; an iterable is sent chunked, unless its length
    is announced."""
    with contextlib.closing(connect(url)) as link:
        # it may answer before it has everything
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.request("PUT", path, body=content, headers=persona.key_headers | headers)
        answer = link.getresponse()
        return answer.status, answer.read().decode()


def upload(persona, sandbox, path, content=b"", *, url=None, **headers):
    return put(url or persona.stack.api_url, persona, f"/v1/sandboxes/{sandbox}/uploads/{path}",
               content, **headers)


def stored(persona, sandbox, path):
    """What the guest has at an absolute path; None if nothing."""
    result = persona.exec(sandbox, "cat", path)
    return result["stdout"].encode() if result["exitCode"] == 0 else None


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("a.txt", "/home/user/a.txt"), ("deep/er/b", "/home/user/deep/er/b"),
        ("%C3%BC%20%3F%23%25.txt", "/home/user/ü ?#%.txt"),
        ("two%0Alines", "/home/user/two\nlines"), ("/etc/motd", "/etc/motd"),
        ("%2Fetc%2Fmotd", "/etc/motd"), ("//srv///x", "/srv/x"), ("a//b", "/home/user/a/b"),
        ("...", "/home/user/..."), ("dir/.env", "/home/user/dir/.env"),
        ("x" * 255, f"/home/user/{'x' * 255}"), ("a\\b:c*", "/home/user/a\\b:c*"),
        ("%EF%BF%BD", "/home/user/\ufffd"),
    ],
)
def test_a_file_is_stored_where_the_address_says(alice, sandbox, address, path):
    content = f"content of {path}\n"
    status, answer = upload(alice, sandbox, address, content.encode())
    assert status == 201, answer
    assert json.loads(answer) == {"path": path, "sizeBytes": len(content.encode())}
    assert stored(alice, sandbox, path) == content.encode()


@pytest.mark.parametrize("address", [
    "", "/", "dir/", "..", "../x", "a/../b", "%2e%2e/x", ".", "a/./b", "%FF", "a/%C3/b", "x" * 4097,
])
def test_an_address_that_names_no_file_is_400_and_stores_nothing(alice, sandbox, address):
    status, answer = upload(alice, sandbox, address, b"x")
    assert status == 400 and list(json.loads(answer)) == ["error"], answer


@pytest.mark.parametrize("kind", [
    "application/json",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
    "image/png",
    "nonsense",
    "",
])
def test_the_body_is_taken_as_it_is_whatever_it_says_it_is(alice, sandbox, kind):
    content = b"a=1&b=--x\r\n{"
    assert upload(alice, sandbox, "typed", content, **{"Content-Type": kind})[0] == 201
    assert stored(alice, sandbox, "/home/user/typed") == content


@pytest.mark.parametrize("size", [0, 1, 65_536, 5_000_001])
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_every_byte_is_stored(alice, sandbox, size, chunked):
    content = os.urandom(size)
    body = iter([content[:1000], content[1000:]]) if chunked else content
    status, answer = upload(alice, sandbox, "bytes", body)
    assert (status, json.loads(answer)["sizeBytes"]) == (201, size)
    got = alice.get(f"/v1/sandboxes/{sandbox}/files",
                    params={"path": "/home/user/bytes"}).json()["content"]
    assert base64.b64decode(got) == content


def test_more_than_the_limit_is_413_as_soon_as_it_is_announced(alice, sandbox):
    upload(alice, sandbox, "kept", b"old")
    head = b"Content-Length: %d\r\n" % (512 * MIB + 1)
    path = f"/v1/sandboxes/{sandbox}/uploads/kept".encode()
    answer = talk(alice.stack.api_url, raw_request(alice, method=b"PUT", path=path, more=head),
                  end=False)
    assert statuses(answer) == [413]
    assert stored(alice, sandbox, "/home/user/kept") == b"old"


def test_a_chunked_body_is_counted(alice, sandbox, narrow):
    exact = [b"x" * 100_000] * 3
    assert upload(alice, sandbox, "kept", iter(exact), url=narrow)[0] == 201
    status, answer = upload(alice, sandbox, "kept", iter([*exact, b"y"]), url=narrow)
    assert status == 413 and str(NARROW_BYTES) in answer
    endless = (b"z" * MIB for _ in range(200))
    with contextlib.suppress(http.client.RemoteDisconnected, ConnectionResetError):
        assert upload(alice, sandbox, "kept", endless, url=narrow)[0] == 413
    assert stored(alice, sandbox, "/home/user/kept") == b"".join(exact)


@pytest.mark.parametrize(("more", "body"), [
    (b"Content-Length: 100\r\n", b"half"),
    (b"Content-Length: 10000000\r\n", b"half" * 100_000),
    (b"Transfer-Encoding: chunked\r\n", b"4\r\nhalf\r\n"),
    (b"Transfer-Encoding: chunked\r\n", b"4\r\nhalf\r\nzz\r\n"),
    (b"Transfer-Encoding: chunked\r\n", b"ffff\r\nhalf"),
])
def test_a_body_that_breaks_off_leaves_the_old_file(alice, sandbox, more, body):
    upload(alice, sandbox, "kept", b"old")
    path = f"/v1/sandboxes/{sandbox}/uploads/kept".encode()
    answered = statuses(
        talk(alice.stack.api_url, raw_request(alice, method=b"PUT", path=path, more=more,
                                              body=body)))
    assert set(answered) <= {400}, answered
    assert stored(alice, sandbox, "/home/user/kept") == b"old"


@pytest.mark.parametrize(("more", "body"), [
    (b"Content-Length: 100\r\n", b"half"), (b"Transfer-Encoding: chunked\r\n", b"4\r\nhalf\r\n"),
])
def test_a_client_that_falls_silent_holds_nothing(alice, sandbox, narrow, more, body):
    upload(alice, sandbox, "kept", b"old")
    path = f"/v1/sandboxes/{sandbox}/uploads/kept".encode()
    answer = talk(narrow, raw_request(alice, method=b"PUT", path=path, more=more, body=body),
                  end=False)
    assert statuses(answer) == [400]
    assert stored(alice, sandbox, "/home/user/kept") == b"old"


def test_a_part_of_a_file_is_refused(alice, sandbox):
    """As `curl -C` sends it."""
    upload(alice, sandbox, "kept", b"old")
    status, said = upload(alice, sandbox, "kept", b"new", **{"Content-Range": "bytes 3-5/6"})
    assert status == 400 and "Content-Range" in said
    assert stored(alice, sandbox, "/home/user/kept") == b"old"


def test_strangers_pins_and_states(alice, mallory, sandbox):
    assert upload(mallory, sandbox, "x", b"x")[0] == 403
    assert upload(alice, sandbox, "x", b"x", **{"X-Svc-Node": "elsewhere"})[0] == 421
    assert upload(alice, "nosuchsandbox", "x", b"x")[0] == 404
    made = alice.create()["id"]
    alice.post(f"/v1/sandboxes/{made}/hibernate")
    status, answer = upload(alice, made, "x", b"x" * MIB)
    assert status == 409 and "hibernated" in answer
    alice.delete(f"/v1/sandboxes/{made}")
    assert upload(alice, made, "x", b"x")[0] == 409


@pytest.mark.slow
def test_an_upload_keeps_the_sandbox_awake(alice):
    made = alice.create(timeout=4)["id"]

    def slowly():
        for number in range(12):
            time.sleep(0.7)
            yield bytes([number]) * 1000

    assert upload(alice, made, "slow", slowly())[0] == 201
    assert alice.get(f"/v1/sandboxes/{made}").json()["status"] == "running"
    assert len(stored(alice, made, "/home/user/slow")) == 12_000
    alice.wait_for(made, "hibernated", timeout_s=30)
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.mark.slow
def test_a_large_upload_takes_little_memory_anywhere(sim_stack, alice, beside, agent):
    process, url = beside(2 * 10**9)
    made = alice.create()["id"]
    with contextlib.closing(
        psycopg2.connect(sim_stack.site.values["SVC_DATABASE_URL"])
    ) as link, link:
        values = (agent.port, TOKEN, made)
        link.cursor().execute(
            "UPDATE sandboxes SET agent_port = %s, agent_token = %s WHERE id = %s", values)
    piece, count = os.urandom(MIB), 500
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(piece)
    workers = [sim_stack.supervisor.pid(name) for name in ("node-ctl", "node-ops", "node-bulk")]
    api = process.pid
    watch = Watch([api, *children(api), agent.process.pid, *filter(None, workers)])
    watch.start()
    length = str(count * MIB)
    status, answer = upload(alice, made, "large", (piece for _ in range(count)),
                            url=url, **{"Content-Length": length})
    assert status == 201 and json.loads(answer)["sizeBytes"] == count * MIB, answer
    assert count * MIB > 2 * MEMORY_LIMIT_BYTES
    assert 0 < watch.stop() < MEMORY_LIMIT_BYTES
    with (agent.root / "home/user/large").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").digest() == digest.digest()
    (agent.root / "home/user/large").unlink()
    alice.delete(f"/v1/sandboxes/{made}")
