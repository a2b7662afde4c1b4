"""What ends an open shell from outside, with which code; and that an open shell keeps its sandbox
awake."""
import contextlib
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.guest_calls.shells import RENEW_EVERY_S
from tests.clients.load import Load
from tests.clients.shells import ShellClient, url_of
from tests.host.shell_guest import point_at, running_agent
from tests.stack.database import query
from tests.stack.waiting import becomes, until

GRACEFUL_S = 20  # config/gunicorn/every_process.py
SLEEP = "/v1/sandboxes/{}/hibernate"
# Keeps a wake waiting for its service: nobody looks at it again before an hour is over.
WAIT_ON = """
UPDATE operations AS o SET due_at = now() + interval '1 hour' FROM sandboxes AS s
WHERE s.id = %s AND o.sandbox_id = s.id AND o.kind = 'wake' AND o.state = 'pending'
    AND o.waits_for IS NOT NULL AND s.status = 'running' RETURNING o.id
"""


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


def test_a_wake_that_waits_for_a_service_holds_up_no_shell(sim_stack, alice, sandbox):
    """Nothing ever listens, and the wake waits until the sandbox is deleted."""
    wish = {"startCommand": "echo broken", "readinessPort": 3000, "ports": [3000]}
    made = alice.post(f"/v1/sandboxes/{sandbox}/fork", json=wish).json()["id"]
    try:
        alice.wait_for(made, "running")
        alice.post(SLEEP.format(made)).raise_for_status()
        with ThreadPoolExecutor() as pool:
            opening = pool.submit(ShellClient, url_of(sim_stack, made), alice.key_headers)
            until(lambda: query(sim_stack, WAIT_ON, made))
            with opening.result() as shell:
                shell.type("exit 4\n")
                assert shell.to_the_end() == 1000 and shell.controls[0]["exitCode"] == 4
        seen = query(sim_stack, "SELECT status, task FROM sandboxes WHERE id = %s", made)
        assert seen == [("running", "wake")]
    finally:
        alice.delete(f"/v1/sandboxes/{made}")


def test_a_delete_closes_with_1001(sim_stack, alice, agent):
    made = alice.create()["id"]
    point_at(sim_stack, made, agent)
    with opened(sim_stack, made, alice) as shell:
        alice.delete(f"/v1/sandboxes/{made}")
        assert shell.to_the_end() == 1001


@pytest.mark.slow
def test_an_open_shell_keeps_awake_and_its_end_starts_the_clock(sim_stack, alice, other):
    """Its activity would last a minute and is renewed for as long as it is open."""
    with opened(sim_stack, other, alice) as shell:
        [ends] = held_until(sim_stack, other)
        until(lambda: held_until(sim_stack, other) > [ends], 2 * RENEW_EVERY_S)
        assert status(alice, other) == "running", "far longer than its idle timeout"
        ended = time.monotonic()
        shell.type("exit\n")
        assert shell.to_the_end() == 1000
    becomes(lambda: status(alice, other), "hibernated", 20)
    assert time.monotonic() - ended > 1.5


@pytest.mark.slow
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
    becomes(lambda: held_until(sim_stack, other), [], 60)
    becomes(lambda: status(alice, other), "hibernated", 20)


def held_until(stack, sandbox_id):
    """For each activity of a sandbox the time at which it ends by itself."""
    found = query(stack, "SELECT expires_at FROM activities WHERE sandbox_id = %s", sandbox_id)
    return [ends for ends, in found]


class Echoes(Load):
    """Asks a shell for an echo again and again; `slowest_s` is the longest that one took."""

    def __init__(self, shell):
        super().__init__(self._run)
        self._shell, self.slowest_s = shell, 0.0

    def _run(self):
        for number in itertools.count():
            if self.ends.wait(0.05):
                return
            began = time.monotonic()
            self._shell.type(f"echo kept-$(({number}+1))\n")
            self._shell.until(f"kept-{number + 1}")
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)


def test_a_revoked_key_closes_with_1008_within_the_poll_interval(sim_stack, alice, box):
    """The second key is revoked just after a look, so that its shell waits for a whole interval.
    What a busy machine adds is seen by the echoes of a shell that stays."""
    keys = [alice.post("/v1/api-keys", json={"name": "short"}, headers=alice.jwt_headers).json()
            for _ in range(2)]
    poll_s = sim_stack.settings.identity_poll_s
    with contextlib.ExitStack() as stack:
        shells = [stack.enter_context(opened(sim_stack, box, alice,
                                             Authorization=f"Bearer {key['key']}"))
                  for key in keys]
        kept = stack.enter_context(opened(sim_stack, box, alice))
        with Echoes(kept) as echoes:
            for key, shell in zip(keys, shells, strict=True):
                alice.delete(f"/v1/api-keys/{key['apiKey']['id']}",
                             headers=alice.jwt_headers).raise_for_status()
                revoked = time.monotonic()
                assert shell.to_the_end() == 1008 and "credential" in shell.reason
                took_s = time.monotonic() - revoked
        kept.type("exit\n")
        assert kept.to_the_end() == 1000, "nobody else's shell ends"
    print(f"closed after {took_s:.2f} s, an echo took up to {echoes.slowest_s:.2f} s")
    assert took_s < 3 * poll_s + 20 * echoes.slowest_s


@pytest.mark.slow
def test_the_end_of_the_service_closes_with_1001_and_at_once(sim_stack, alice, box):
    """Also where one of the clients does not read, and another one's guest takes nothing."""
    with opened(sim_stack, box, alice) as shell, opened(sim_stack, box, alice) as deaf:
        deaf.type("yes\n")
        time.sleep(1)
        began = time.monotonic()
        try:
            sim_stack.stop("shell")
            took_s = time.monotonic() - began
            assert shell.to_the_end() == 1001 and "connect again" in shell.reason
            assert took_s < GRACEFUL_S, "it did not wait for shells to end by themselves"
        finally:
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
