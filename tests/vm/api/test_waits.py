"""What waits for a real guest holds up nobody else, and ends what has to end in it."""
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

DEAF = (
    "import signal, http.server; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " http.server.test(http.server.SimpleHTTPRequestHandler, port=3000)"
)
OWN = {
    "startCommand": "echo own >> /root/starts; cd /srv && exec python3 -m http.server 3000",
    "readinessPort": 3000, "ports": [3000]
}


def post(persona, path, **body):
    return persona.post(f"/v1/sandboxes/{path}", json=body)


def shell(persona, sandbox, line):
    answer = post(persona, f"{sandbox}/exec", cmd=line)
    assert answer.status_code == 200, answer.text
    return answer.json()["stdout"].strip()


@pytest.fixture
def made():
    """Sandboxes to delete afterwards, with who owns them."""
    sandboxes = []
    yield sandboxes
    for persona, sandbox in sandboxes:
        persona.delete(f"/v1/sandboxes/{sandbox}")


def create_s(persona, made):
    """Seconds until a new sandbox runs."""
    began = time.monotonic()
    sandbox = persona.create(size="small")["id"]
    took = time.monotonic() - began
    made.append((persona, sandbox))
    return took


def test_wakes_that_wait_for_a_deaf_guest_do_not_delay_anothers_create(vm_alice, vm_mallory, made):
    waiting = [vm_alice.create(size="small")["id"] for _ in range(4)]
    made += [(vm_alice, sandbox) for sandbox in waiting]
    for sandbox in waiting:
        assert post(vm_alice, f"{sandbox}/hibernate").status_code == 200
    create_s(vm_mallory, made)
    alone = create_s(vm_mallory, made)
    with ThreadPoolExecutor(len(waiting)) as pool, contextlib.ExitStack() as stack:
        asked = [pool.submit(post, vm_alice, f"{sandbox}/wake", readinessPort=9999)
                 for sandbox in waiting]
        for sandbox in waiting:
            stack.callback(vm_alice.delete, f"/v1/sandboxes/{sandbox}")
            vm_alice.wait_for(sandbox, "running", timeout_s=30)
            assert shell(vm_alice, sandbox, "echo here") == "here", "it can be used"
        beside = create_s(vm_mallory, made)
        assert not any(one.done() for one in asked), "they all wait for their port"
    assert beside < max(5 * alone, 25), f"{beside:.1f} s beside waits, {alone:.1f} s alone"


def test_a_guest_that_never_answers_is_deleted_as_quickly_as_any(vm_alice, made):
    """Its agent is gone for good, and its boot from the disk is waited for."""
    mute, plain = (vm_alice.create(size="small")["id"] for _ in range(2))
    made += [(vm_alice, mute), (vm_alice, plain)]
    shell(vm_alice, mute, "systemctl mask svc-agent.service && sync")
    post(vm_alice, f"{mute}/exec", cmd="poweroff -f", detached=True)
    vm_alice.wait_for(mute, "hibernated")
    with ThreadPoolExecutor(1) as pool:
        waking = pool.submit(post, vm_alice, f"{mute}/wake")
        time.sleep(2)
        assert not waking.done(), "nobody can have answered"
        plain_s, mute_s = (deletion_s(vm_alice, sandbox) for sandbox in (plain, mute))
        assert waking.result().status_code == 409
    assert mute_s < max(5 * plain_s, 15), f"{mute_s:.1f} s, {plain_s:.1f} s for another"


def deletion_s(persona, sandbox):
    began = time.monotonic()
    assert persona.delete(f"/v1/sandboxes/{sandbox}").json()["status"] == "stopped"
    return time.monotonic() - began


def test_a_forks_own_command_replaces_a_listener_that_ignores_term(vm_alice, made):
    source = vm_alice.create(size="small")["id"]
    made.append((vm_alice, source))
    post(vm_alice, f"{source}/exec", cmd="python3", args=["-c", DEAF], detached=True)
    deadline = time.monotonic() + 60
    while "200" not in shell(vm_alice, source,
                             "curl -s -o /dev/null -w '%{http_code}' localhost:3000 || true"):
        assert time.monotonic() < deadline
    fork = post(vm_alice, f"{source}/fork", **OWN).json()["id"]
    made.append((vm_alice, fork))
    assert "error" not in vm_alice.wait_for(fork, "running")
    assert shell(vm_alice, fork, "cat /root/starts") == "own"
    assert shell(vm_alice, fork, "pgrep -fc '[S]IG_IGN' || true") == "0"
    assert shell(vm_alice, fork, "curl -s -o /dev/null -w '%{http_code}' localhost:3000") == "200"
    assert shell(vm_alice, source, "pgrep -fc '[S]IG_IGN'") == "1", "the source goes on"
