"""What ends an open shell from outside, with which code; and that an open shell keeps its sandbox
awake."""
import contextlib
import threading
import time

import psycopg2
import pytest

from tests.clients.shells import ShellClient, url_of
from tests.host.shell_guest import point_at, running_agent
from tests.stack.waiting import becomes, until

GRACEFUL_S = 20  # config/gunicorn/every_process.py
SLEEP = "/v1/sandboxes/{}/hibernate"


@pytest.fixture
def other(alice, sim_stack, agent):
    """A sandbox with a real agent that no other test uses, which idles out after two seconds."""
    made = alice.create(timeout=2)["id"]
    point_at(sim_stack, made, agent)
    yield made
    alice.delete(f"/v1/sandboxes/{made}")


def opened(stack, sandbox_id, persona, **headers):
    shell = ShellClient(url_of(stack, sandbox_id), headers or persona.key_headers)
    shell.type("echo open-$((1+1))\n")
    shell.until("open-2")
    return shell


def status(alice, sandbox_id):
    return alice.get(f"/v1/sandboxes/{sandbox_id}").json()["status"]


def test_a_sleep_closes_with_1001_and_the_next_connection_wakes(sim_stack, alice, sandbox):
    """Into the simulated guest, whose memory is kept."""
    url = url_of(sim_stack, sandbox)
    with ShellClient(url, alice.key_headers) as shell:
        shell.type("pwd\n")
        shell.until("/home/user\r\n")
        sleeper = threading.Thread(target=alice.post, args=(SLEEP.format(sandbox),))
        sleeper.start()
        assert shell.to_the_end() == 1001 and "sleep" in shell.reason
        sleeper.join()
    assert status(alice, sandbox) == "hibernated"
    with ShellClient(url, alice.key_headers) as shell:
        assert status(alice, sandbox) == "running"
        shell.type("exit 4\n")
        assert shell.to_the_end() == 1000 and shell.controls[0]["exitCode"] == 4


def test_one_that_boots_is_waited_for(sim_stack, alice):
    made = alice.post("/v1/sandboxes", json={}).json()["id"]
    with ShellClient(url_of(sim_stack, made), alice.key_headers) as shell:
        shell.type("echo up\n")
        shell.until("up\r\nup\r\n")
    alice.delete(f"/v1/sandboxes/{made}")


def test_a_delete_closes_with_1001(sim_stack, alice, agent):
    made = alice.create()["id"]
    point_at(sim_stack, made, agent)
    with opened(sim_stack, made, alice) as shell:
        alice.delete(f"/v1/sandboxes/{made}")
        assert shell.to_the_end() == 1001


def test_an_open_shell_keeps_awake_and_its_end_starts_the_clock(sim_stack, alice, other):
    with opened(sim_stack, other, alice) as shell:
        time.sleep(4)
        assert status(alice, other) == "running"
        shell.type("exit\n")
        assert shell.to_the_end() == 1000
        ended = time.monotonic()
    becomes(lambda: status(alice, other), "hibernated", 20)
    assert time.monotonic() - ended > 1.5


def test_a_client_that_just_leaves_hangs_up_the_shell(sim_stack, alice, other):
    """Also while its guest takes no input: nobody reads from the client then."""
    quiet, raw = (opened(sim_stack, other, alice) for _ in range(2))
    quiet.type("sleep 1000\n")
    raw.type("stty raw -echo; echo raw-$((1+1)); sleep 1000\n")
    raw.until("raw-2")
    for _ in range(20):
        raw.send(0, b"z" * 60000)
    for shell in (quiet, raw):
        shell.socket.sock.close()
    becomes(lambda: activities(sim_stack, other), 0, 60)
    becomes(lambda: status(alice, other), "hibernated", 20)


def activities(stack, sandbox_id):
    with contextlib.closing(psycopg2.connect(stack.site.values["SVC_DATABASE_URL"])) as link:
        with link, link.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM activities WHERE sandbox_id = %s", (sandbox_id,))
            return cursor.fetchone()[0]


def test_a_revoked_key_closes_with_1008(sim_stack, alice, box):
    made = alice.post("/v1/api-keys", json={"name": "short"}, headers=alice.jwt_headers).json()
    key = {"Authorization": f"Bearer {made['key']}"}
    with opened(sim_stack, box, alice, **key) as shell, opened(sim_stack, box, alice) as kept:
        alice.delete(f"/v1/api-keys/{made['apiKey']['id']}", headers=alice.jwt_headers)
        assert shell.to_the_end() == 1008 and "credential" in shell.reason
        kept.type("echo kept-$((1+1))\n")
        kept.until("kept-2")


def test_the_end_of_the_service_closes_with_1001_and_at_once(sim_stack, alice, box):
    """Also where one of the clients does not read, and another one's guest takes nothing."""
    with opened(sim_stack, box, alice) as shell, opened(sim_stack, box, alice) as deaf:
        deaf.type("yes\n")
        time.sleep(1)
        began = time.monotonic()
        sim_stack.stop("shell")
        took_s = time.monotonic() - began
        assert shell.to_the_end() == 1001 and "connect again" in shell.reason
        assert took_s < GRACEFUL_S, "it did not wait for shells to end by themselves"
    sim_stack.start("shell")
    until(lambda: reaches(sim_stack, alice, box))


def reaches(stack, persona, sandbox_id):
    try:
        opened(stack, sandbox_id, persona).socket.shutdown()
    except OSError:
        return False
    return True


def test_a_guest_that_dies_closes_with_1011(sim_stack, alice):
    made = alice.create()["id"]
    try:
        with running_agent() as mortal:
            point_at(sim_stack, made, mortal)
            with opened(sim_stack, made, alice) as shell:
                mortal.process.kill()
                assert shell.to_the_end() == 1011 and shell.reason
    finally:
        alice.delete(f"/v1/sandboxes/{made}")
