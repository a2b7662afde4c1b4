"""What users do with a sandbox, end to end: REST API, queue, worker, QEMU, agent, and back."""
import base64
import hashlib
import os
import socket
import time
from functools import partial

import pytest

from tests.host.driver_checks import check_clock

# A process whose nonce lives only in its memory: it shows it on SIGUSR1. A reboot, or a restore of
# the wrong RAM, loses it.
KEEPER = """
import os, signal, time
nonce = os.urandom(16).hex()
def show(*_):
    with open('/dev/shm/nonce.new', 'w') as out: out.write(nonce)
    os.replace('/dev/shm/nonce.new', '/dev/shm/nonce')
signal.signal(signal.SIGUSR1, show)
show()
open('/dev/shm/pid', 'w').write(str(os.getpid()))
while True: time.sleep(0.05); open('/dev/shm/beats', 'a').write('%.3f\\n' % time.time())
"""
IDENTITY = (
    "cat /etc/machine-id; cat /etc/ssh/ssh_host_*_key.pub | sha256sum; od -An -N16 -tx1"
    " /dev/urandom; hostname"
)


def shell(persona, sandbox_id, line, **body):
    answer = persona.post(f"/v1/sandboxes/{sandbox_id}/exec", json={"cmd": line, **body})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["exitCode"] == 0, result
    return result["stdout"]


def act(persona, sandbox_id, action, status):
    answer = persona.post(f"/v1/sandboxes/{sandbox_id}/{action}")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["id"], answer.json()["status"]) == (sandbox_id, status)
    return answer.json()


@pytest.fixture
def sandboxes(vm_alice):
    """Makes running sandboxes and removes them afterwards."""
    made = []

    def make(**body):
        sandbox = vm_alice.create(**body)
        made.append(sandbox["id"])
        return sandbox

    make.track = made.append
    yield make
    for sandbox_id in made:
        assert vm_alice.delete(f"/v1/sandboxes/{sandbox_id}").status_code == 200


@pytest.fixture
def keeper(vm_alice, sandboxes):
    """A sandbox in which the nonce keeper runs."""
    sandbox_id = sandboxes()["id"]
    vm_alice.post(f"/v1/sandboxes/{sandbox_id}/exec",
                  json={"cmd": "python3", "args": ["-c", KEEPER],
                        "detached": True}).raise_for_status()
    deadline = time.monotonic() + 30
    while not shell(vm_alice, sandbox_id, "cat /dev/shm/pid 2>/dev/null || true"):
        assert time.monotonic() < deadline
    return sandbox_id


def nonce(persona, sandbox_id):
    """The nonce as the living process tells it now."""
    return shell(
        persona, sandbox_id,
        "rm -f /dev/shm/nonce; kill -USR1 $(cat /dev/shm/pid); for i in $(seq 500); do [ -s"
        " /dev/shm/nonce ] && break; sleep 0.02; done; cat /dev/shm/nonce",
    )


def test_processes_memory_files_and_clock_survive_sleeps(vm_alice, keeper):
    """By either pair of names; over more sleeps in vm/driver/test_memory_and_disk.py."""
    content = os.urandom(3_000_000)
    digest = hashlib.sha256(content).hexdigest()
    files = [{
        "path": f"{folder}/blob", "content": base64.b64encode(content).decode(), "mode": 0o600
    } for folder in ("/dev/shm", "/home/user")]
    assert vm_alice.post(f"/v1/sandboxes/{keeper}/files", json=files).status_code == 204
    secret = nonce(vm_alice, keeper)
    for cycle in range(2):
        act(vm_alice, keeper, "hibernate" if cycle % 2 else "pause", "hibernated")
        if cycle == 0:
            time.sleep(5)
        act(vm_alice, keeper, "wake" if cycle % 2 else "resume", "running")
        check_clock(partial(shell, vm_alice), keeper)
        assert nonce(vm_alice, keeper) == secret, f"process lost in cycle {cycle}"
        sums = shell(vm_alice, keeper, "sha256sum /dev/shm/blob /home/user/blob").split()
        assert sums[0] == sums[2] == digest, f"content changed in cycle {cycle}"
    assert shell(vm_alice, keeper,
                 "dmesg | grep -ciE 'ext4.*error|i/o error' || true").strip() == "0"


def test_a_fork_carries_processes_and_the_source_never_stops(vm_alice, sandboxes, keeper):
    secret = nonce(vm_alice, keeper)
    answer = vm_alice.post(f"/v1/sandboxes/{keeper}/fork", json={})
    assert answer.status_code == 201, answer.text
    fork = answer.json()["id"]
    sandboxes.track(fork)
    vm_alice.wait_for(fork, "running")
    assert nonce(vm_alice, fork) == secret and nonce(vm_alice, keeper) == secret
    beats = [float(line) for line in shell(vm_alice, keeper, "cat /dev/shm/beats").split()]
    assert max(
        after - before for before, after in zip(beats, beats[1:])) < 10, "the source stood still"
    shell(vm_alice, fork, "echo fork > /dev/shm/mine; echo fork > /root/mine; sync")
    assert shell(vm_alice, keeper, "ls /dev/shm/mine /root/mine 2>/dev/null || true") == ""


def test_clones_are_different_computers(vm_alice, sandboxes):
    source = sandboxes()["id"]
    twin = sandboxes()["id"]
    fork = vm_alice.post(f"/v1/sandboxes/{source}/fork", json={}).json()["id"]
    sandboxes.track(fork)
    vm_alice.wait_for(fork, "running")
    identities = [shell(vm_alice, one, IDENTITY).split("\n") for one in (source, twin, fork)]
    for mine, theirs in ((0, 1), (0, 2), (1, 2)):
        for left, right in zip(identities[mine][:4], identities[theirs][:4]):
            assert left and left != right


def test_a_snapshot_outlives_its_source_and_forks_many_times(vm_alice, sandboxes, keeper):
    secret = nonce(vm_alice, keeper)
    shell(vm_alice, keeper, "echo kept > /home/user/note")
    snapshot = vm_alice.post(f"/v1/sandboxes/{keeper}/snapshot",
                             json={"idempotencyKey": "once"}).json()
    assert snapshot["sourceSandboxId"] == keeper and snapshot["kind"] == "user_project"
    assert vm_alice.get(f"/v1/sandboxes/{keeper}").json()["status"] == "running"
    assert vm_alice.delete(f"/v1/sandboxes/{keeper}").json()["status"] == "stopped"
    again = vm_alice.post(f"/v1/sandboxes/{keeper}/snapshot",
                          json={"idempotencyKey": "once"}).json()
    assert again["id"] == snapshot["id"]
    for _ in range(2):
        answer = vm_alice.post("/v1/sandboxes/fork", json={"snapshotId": snapshot["id"]})
        assert answer.status_code == 201, answer.text
        fork = answer.json()["id"]
        sandboxes.track(fork)
        vm_alice.wait_for(fork, "running")
        assert nonce(vm_alice, fork) == secret
        assert shell(vm_alice, fork, "cat /home/user/note") == "kept\n"


def test_a_sleeping_sandbox_forks_without_waking(vm_alice, sandboxes, keeper):
    secret = nonce(vm_alice, keeper)
    act(vm_alice, keeper, "hibernate", "hibernated")
    fork = vm_alice.post(f"/v1/sandboxes/{keeper}/fork", json={}).json()["id"]
    sandboxes.track(fork)
    vm_alice.wait_for(fork, "running")
    assert nonce(vm_alice, fork) == secret
    assert vm_alice.get(f"/v1/sandboxes/{keeper}").json()["status"] == "hibernated"
    act(vm_alice, keeper, "wake", "running")
    assert nonce(vm_alice, keeper) == secret


# The most memory that the agent and its children held, every tenth of a second.
WATCH = (
    "while sleep 0.1; do for pid in $(pgrep -f -- '-m agent'); do grep -h VmHWM /proc/$pid/status;"
    " done; done > /run/watched 2> /dev/null"
)


def test_an_upload_reaches_the_guest_byte_for_byte_and_takes_little_of_its_memory(
        vm_alice, sandboxes):
    box = sandboxes()["id"]
    vm_alice.post(f"/v1/sandboxes/{box}/exec", json={"cmd": WATCH, "detached": True})
    piece, digest = os.urandom(1 << 20), hashlib.sha256()
    for _ in range(64):
        digest.update(piece)
    answer = vm_alice.request("PUT", f"/v1/sandboxes/{box}/uploads/a dir/large",
                              content=(piece for _ in range(64)))
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"path": "/home/user/a dir/large", "sizeBytes": 64 << 20}
    told = shell(vm_alice, box,
                 "cd '/home/user/a dir'; sha256sum < large; stat -c '%U %a' . large").split()
    assert told == [digest.hexdigest(), "-", "user", "755", "user", "644"]
    watched = shell(vm_alice, box, "cat /run/watched").split()
    assert 0 < max(map(int, watched[1::3])) * 1024 < 200 * 10**6


def test_a_start_command_gates_running_and_is_started_again_after_a_power_off(vm_alice, sandboxes):
    source = sandboxes()["id"]
    shell(vm_alice, source, "mkdir -p /srv/site && echo hello > /srv/site/index.html && sync")
    spec = {
        "startCommand": "cd /srv/site && exec python3 -m http.server 3000", "readinessPort": 3000,
        "ports": [3000]
    }
    fork = vm_alice.post(f"/v1/sandboxes/{source}/fork", json=spec).json()["id"]
    sandboxes.track(fork)
    sandbox = vm_alice.wait_for(fork, "running")
    host_port = next(int(host) for host, guest in sandbox["portMap"].items() if guest == 3000)
    assert page(host_port).endswith("hello\n")
    vm_alice.post(f"/v1/sandboxes/{fork}/exec", json={"cmd": "poweroff -f", "detached": True})
    vm_alice.wait_for(fork, "hibernated")
    # A boot from the disk may take longer than the request waits; it goes on all the same.
    assert vm_alice.post(f"/v1/sandboxes/{fork}/wake").status_code in (200, 503)
    vm_alice.wait_for(fork, "running")
    assert page(host_port).endswith("hello\n"), "same address, service started again"


def page(host_port):
    """GET / by hand, so that nothing but the port is in between."""
    with socket.create_connection(("127.0.0.1", host_port), timeout=20) as link:
        link.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def test_idle_sandboxes_fall_asleep_and_calls_keep_them_awake(vm_alice, sandboxes):
    idle = sandboxes(timeout=12)["id"]
    awake_until = time.monotonic() + 15
    while time.monotonic() < awake_until:
        time.sleep(1)
        shell(vm_alice, idle, "true")
    vm_alice.wait_for(idle, "hibernated", timeout_s=60)
    answer = vm_alice.post(f"/v1/sandboxes/{idle}/exec", json={"cmd": "true"})
    assert answer.status_code == 409 and "hibernated" in answer.json()["error"]


def test_a_machine_survives_the_death_of_its_worker(vm_alice, vm_stack, keeper):
    secret = nonce(vm_alice, keeper)
    lanes = ("node-ctl", "node-ops", "node-bulk", "node-archive")
    vm_stack.crash(*lanes)
    assert nonce(vm_alice, keeper) == secret, "the data road needs no worker"
    vm_stack.start(*lanes)
    vm_stack.wait_healthy()
    act(vm_alice, keeper, "hibernate", "hibernated")
    act(vm_alice, keeper, "wake", "running")
    assert nonce(vm_alice, keeper) == secret
