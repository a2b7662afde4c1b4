"""Waking real machines: a resume, not a boot; and ports that a wake brings."""
import os
import signal
import socket
import time

import pytest

from bench.bounds import BOUNDS
from bench.floor import Floor
from nodeworker.hypervisor.qemu.rundir import RunDir
from tests.stack.database import query

pytestmark = pytest.mark.vm


@pytest.fixture
def machine(vm_alice):
    made = vm_alice.create()["id"]
    yield made
    vm_alice.delete(f"/v1/sandboxes/{made}")


def wake_s(persona, sandbox):
    """Seconds from the request to the first command's answer."""
    began = time.monotonic()
    answer = persona.post(f"/v1/sandboxes/{sandbox}/wake")
    assert answer.status_code == 200 and answer.json()["status"] == "running", answer.text
    assert persona.exec(sandbox, "true")["exitCode"] == 0
    return time.monotonic() - began


def turn_off(persona, sandbox, line):
    """End the machine from inside; the row follows."""
    persona.post(f"/v1/sandboxes/{sandbox}/exec", json={"cmd": line, "detached": True})
    persona.wait_for(sandbox, "hibernated")


def test_a_wake_is_a_resume_and_not_a_boot(vm_alice, machine):
    """The contract's 0.3 s is measured by `make bench`; here it is held against a boot of the same
    machine, which has been turned off and keeps its files."""
    vm_alice.exec(machine, "sh", "-c", "echo kept > /root/note && sync")
    turn_off(vm_alice, machine, "shutdown -h now")
    boot_s = wake_s(vm_alice, machine)
    assert vm_alice.exec(machine, "cat", "/root/note")["stdout"] == "kept\n"
    resumes = []
    for _ in range(3):
        assert vm_alice.post(f"/v1/sandboxes/{machine}/hibernate").json()["status"] == "hibernated"
        resumes.append(wake_s(vm_alice, machine))
    assert min(resumes) < boot_s / 3, f"boot {boot_s:.1f} s, resumes {resumes}"


def test_a_wake_takes_little_more_than_the_bare_restore(vm_stack, vm_alice, machine):
    """The same restore by a script, in turn with it: what the machine is busy with slows both."""
    floors, wakes = [], []
    with Floor(vm_stack.settings) as floor:
        for _ in range(4):
            vm_alice.exec(machine, "true")
            vm_alice.post(f"/v1/sandboxes/{machine}/hibernate").raise_for_status()
            floors.append(floor.wake_to_exec() / 1000)
            wakes.append(wake_s(vm_alice, machine))
    # Half more than `make bench` allows a quiet machine.
    assert min(wakes) < 1.5 * BOUNDS["wake_to_exec"] * min(floors), (wakes, floors)


def test_a_wake_with_a_readiness_port_answers_when_the_guest_listens(vm_alice, machine):
    """The service starts to listen some seconds after the memory is back."""
    path = f"/v1/sandboxes/{machine}"
    later = {"cmd": "sleep 3; exec python3 -m http.server 3000", "detached": True}
    assert vm_alice.post(f"{path}/exec", json=later).status_code == 200
    assert vm_alice.post(f"{path}/hibernate").json()["status"] == "hibernated"
    woken = vm_alice.post(f"{path}/wake", json={"readinessPort": 3000, "ports": [3000]})
    assert woken.status_code == 200 and woken.json()["status"] == "running", woken.text
    host_port = next(int(host) for host, guest in woken.json()["portMap"].items() if guest == 3000)
    assert fetch(host_port), "nobody listened when the wake was answered"


@pytest.mark.parametrize("line", ["halt -f", "reboot", "systemctl poweroff -ff"])
def test_a_machine_that_its_user_turns_off_is_asleep(vm_alice, machine, line):
    """A machine that only halted would be `running` for ever, and nothing in it would answer. How
    it boots again is tried above, after a reboot in test_agent_callbacks.py, and after each way to
    halt in vm/driver/test_halted.py."""
    turn_off(vm_alice, machine, line)


@pytest.mark.parametrize("action", ["hibernate", "snapshot"])
def test_a_machine_that_was_killed_a_moment_ago_is_asleep_or_captured_at_once(
        vm_alice, vm_stack, machine, action):
    """The row still says `running`. This took 20 s, for the agent's silence and four attempts."""
    vm_alice.exec(machine, "sh", "-c", "echo kept > /root/note && sync")
    record = RunDir(vm_stack.settings.node_dir / "sandboxes" / machine).find_record()
    os.kill(record.pid, signal.SIGKILL)
    answer = vm_alice.post(f"/v1/sandboxes/{machine}/{action}")
    assert answer.status_code == (201 if action == "snapshot" else 200), answer.text
    ended = query(
        vm_stack, "SELECT attempts, state FROM operations WHERE sandbox_id = %s AND kind = %s"
        " ORDER BY op_seq DESC LIMIT 1", machine, action)
    # The reconciler may have been quicker: then there is nothing to be put to sleep.
    assert ended == [(1, "succeeded")] or (action, ended) == ("hibernate", [])
    vm_alice.wait_for(machine, "hibernated")


def test_a_machine_that_ended_by_itself_is_forked_and_captured_from_its_disk(vm_alice, machine):
    """Its process is killed and the row not yet corrected, or the user has turned it off: the same
    answers."""
    vm_alice.exec(machine, "sh", "-c", "echo kept > /root/note && sync")
    turn_off(vm_alice, machine, "poweroff -f")
    taken = vm_alice.post(f"/v1/sandboxes/{machine}/snapshot")
    assert taken.status_code == 201, taken.text
    forked = vm_alice.post(f"/v1/sandboxes/{machine}/fork", json={})
    assert forked.status_code == 201, forked.text
    copy = vm_alice.wait_for(forked.json()["id"], "running")["id"]
    try:
        assert vm_alice.exec(copy, "cat", "/root/note")["stdout"] == "kept\n"
        assert vm_alice.get(f"/v1/sandboxes/{machine}").json()["status"] == "hibernated"
    finally:
        vm_alice.delete(f"/v1/sandboxes/{copy}")


def test_ports_added_to_a_running_sandbox_reach_it(vm_alice, machine):
    path = f"/v1/sandboxes/{machine}"
    server = {"cmd": "cd /etc && exec python3 -m http.server 3000", "detached": True}
    assert vm_alice.post(f"{path}/exec", json=server).status_code == 200
    woken = vm_alice.post(f"{path}/wake", json={"ports": [3000]})
    assert woken.status_code == 200 and woken.json()["status"] == "running"
    host_port = next(int(host) for host, guest in woken.json()["portMap"].items() if guest == 3000)
    deadline = time.monotonic() + 60
    while not (page := fetch(host_port)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert page.startswith(b"HTTP/1.0 200") and page.decode().strip().endswith(machine)


def fetch(host_port):
    """GET /hostname, or nothing while nobody listens."""
    try:
        with socket.create_connection(("127.0.0.1", host_port), timeout=10) as link:
            link.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
            return b"".join(iter(lambda: link.recv(65536), b""))
    except OSError:
        return b""
