"""How many shells may be open, and what one that sends or is sent too much costs the process."""
import contextlib
import time

import httpx
import pytest
import redis
import websocket

from bin.stack.free_ports import free_port
from tests.clients.shells import DATA, ShellClient, refused
from tests.host.shell_guest import point_at
from tests.stack.memory import growth
from tests.stack.processes import Process
from tests.stack.waiting import until

SMALL = 20 * 1024 * 1024


@pytest.fixture(scope="module")
def small(sim_stack, tmp_path_factory):
    """A shell process with room for three shells, two of them of one owner; and its port."""
    port = free_port(0)
    values = {"SVC_SHELL_PORT": str(port), "SVC_SHELL_LIMIT": "3", "SVC_SHELLS_PER_OWNER": "2"}
    with Process(sim_stack, "shell", values, tmp_path_factory.mktemp("shell") / "log") as process:
        until(lambda: answers(port))
        yield process, port


def answers(port):
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
    return False


def test_owner_and_process_have_a_limit_and_places_come_back(small, sim_stack, alice, mallory, box,
                                                             agent):
    _, port = small
    hers = mallory.create()["id"]
    point_at(sim_stack, hers, agent)
    url, her_url = f"ws://127.0.0.1:{port}/{box}", f"ws://127.0.0.1:{port}/{hers}"
    with contextlib.ExitStack() as opened:
        first, _ = (opened.enter_context(ShellClient(url, alice.key_headers)) for _ in range(2))
        answer = refused(url, alice.key_headers)
        assert answer.status_code == 429 and int(answer.headers["Retry-After"]) > 0
        opened.enter_context(ShellClient(her_url, mallory.key_headers))
        answer = refused(her_url, mallory.key_headers)
        assert answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
        first.type("exit\n")
        assert first.to_the_end() == 1000
        again = opened.enter_context(retried(lambda: ShellClient(url, alice.key_headers)))
        again.type("echo again-$((1+1))\n")
        again.until("again-2")
    mallory.delete(f"/v1/sandboxes/{hers}")


@pytest.fixture
def rated(sim_stack, tmp_path):
    """The port of a shell process whose owners may send two requests at once, and then one in a
    thousand seconds."""
    port = free_port(0)
    values = {"SVC_SHELL_PORT": str(port), "SVC_SANDBOX_RATE_PER_S": "0.001",
              "SVC_SANDBOX_RATE_BURST": "2"}
    forget_buckets(sim_stack)
    with Process(sim_stack, "shell", values, tmp_path / "log"):
        until(lambda: answers(port))
        yield port
    forget_buckets(sim_stack)


def forget_buckets(stack):
    with redis.Redis.from_url(stack.settings.redis_url) as client:
        for key in client.scan_iter("svc:rate:*"):
            client.delete(key)


@pytest.mark.parametrize("path", ["", "/v1/sandboxes"])
def test_handshakes_count_for_the_request_rate_and_beyond_it_nothing_is_woken(
        rated, alice, mallory, box, path):
    url = f"ws://127.0.0.1:{rated}{path}"
    ending = "/shell" if path else ""
    sleeping = alice.create()["id"]
    assert alice.post(f"/v1/sandboxes/{sleeping}/hibernate").status_code == 200
    for _ in range(2):
        with ShellClient(f"{url}/{box}{ending}", alice.key_headers):
            pass
    with pytest.raises(websocket.WebSocketBadStatusException) as refusal:
        ShellClient(f"{url}/{sleeping}{ending}", alice.key_headers)
    assert refusal.value.status_code == 429
    assert int(refusal.value.resp_headers["retry-after"]) > 0
    assert alice.get(f"/v1/sandboxes/{sleeping}").json()["status"] == "hibernated"
    assert refused(f"{url}/{box}{ending}", alice.jwt_headers).status_code == 429, "one bucket"
    assert refused(f"{url}/{box}{ending}", mallory.key_headers).status_code == 403, "of her own"
    assert httpx.get(f"http://127.0.0.1:{rated}/health", trust_env=False).status_code == 200
    alice.delete(f"/v1/sandboxes/{sleeping}")


def retried(make):
    """The place of a shell is given back in the moment after its Close."""
    made = []
    until(lambda: made or (not made and try_to(make, made)), 10)
    return made[0]


def try_to(make, made):
    with contextlib.suppress(Exception):
        made.append(make())
    return bool(made)


def test_a_flood_that_the_guest_does_not_read_is_held_back(sim_stack, url, alice):
    """TCP holds the client back; the process stays as large as it is."""
    with ShellClient(url, alice.key_headers) as shell:
        shell.type("stty raw -echo; echo raw-$((1+1)); sleep 1000\n")
        shell.until("raw-2")
        grown, sent_bytes = growth(sim_stack, "shell"), 0
        shell.socket.settimeout(2)
        with contextlib.suppress(Exception):
            while sent_bytes < 100_000_000:
                shell.send(DATA, b"z" * 60_000)
                sent_bytes += 60_000
        assert sent_bytes < 100_000_000, "nobody held it back"
        assert grown() < SMALL


def test_output_that_nobody_reads_is_held_back(sim_stack, url, alice):
    with ShellClient(url, alice.key_headers) as shell:
        shell.type("echo before-$((1+1)); yes; \n")
        shell.until("before-2")
        grown = growth(sim_stack, "shell")
        time.sleep(2)
        assert grown() < SMALL
        shell.type("\x03echo after-$((1+1))\n")
        shell.until("after-2", within_s=60)
