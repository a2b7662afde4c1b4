"""Templates in real machines: files by checksum, the service that gates `running`, another shape, a
lost process."""
import hashlib
import os
import signal
import socket
from base64 import b64encode

import pytest

from models.ids import new_id
from nodeworker.hypervisor.qemu.rundir import RunDir
from tests.stack.fault_points import fault_point

CONTENT = os.urandom(3_000_000)
PAGE = "/srv/site/index.html"
SERVE = {
    "startCommand": "echo start >> /root/starts; cd /srv/site && exec python3 -m http.server 3000",
    "readinessPort": 3000, "ports": [3000]
}
SLOW = {"startCommand": "echo start >> /root/starts; sleep 3; exec python3 -m http.server 4000",
        "readinessPort": 4000, "ports": [4000]}


def send(persona, method, path, **options):
    answer = persona.request(method, f"/v1/{path}", **options)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def fetch(sandbox):
    """GET / at the host port of the guest's 3000, by hand, so that nothing but the port is in
    between."""
    host_port = next(int(host) for host, guest in sandbox["portMap"].items() if guest == 3000)
    with socket.create_connection(("127.0.0.1", host_port), timeout=20) as link:
        link.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: link.recv(65536), b"")).partition(b"\r\n\r\n")[2]


def check_service(persona, sandbox, *, starts):
    assert hashlib.sha256(fetch(sandbox)).digest() == hashlib.sha256(CONTENT).digest()
    assert persona.exec(sandbox["id"], "cat", "/root/starts")["stdout"].count("start") == starts


@pytest.fixture(scope="module")
def template(vm_alice):
    """A template made as a user makes one: create, write, set up, snapshot (asleep, the harder
    case), publish. Nothing is flushed by hand."""
    name, source = new_id("site"), vm_alice.create()["id"]
    send(vm_alice, "POST", f"sandboxes/{source}/files",
         json=[{"path": PAGE, "content": b64encode(CONTENT).decode(), "mode": 0o644}])
    send(vm_alice, "POST", f"sandboxes/{source}/hibernate")
    taken = send(vm_alice, "POST", f"sandboxes/{source}/snapshot", json={})
    send(vm_alice, "DELETE", f"sandboxes/{source}")
    send(vm_alice, "POST", f"templates/{name}/latest", json={"snapshotId": taken["id"], **SERVE})
    yield name
    vm_alice.delete(f"/v1/templates/{name}/latest")


@pytest.fixture
def create(vm_alice, template):
    made = []

    def make(**body):
        made.append(vm_alice.create(templateId=template, **body))
        return made[-1]

    yield make
    for sandbox in made:
        vm_alice.delete(f"/v1/sandboxes/{sandbox['id']}")


def kill_machine(stack, sandbox_id):
    """End the process of a running VM from the host, as a crash would."""
    record = RunDir(stack.settings.node_dir / "sandboxes" / sandbox_id).find_record()
    os.kill(record.pid, signal.SIGKILL)


def test_the_service_is_up_whenever_the_sandbox_runs(vm_alice, vm_stack, create):
    sandbox = create()
    check_service(vm_alice, sandbox, starts=1)
    send(vm_alice, "POST", f"sandboxes/{sandbox['id']}/hibernate")
    woken = send(vm_alice, "POST", f"sandboxes/{sandbox['id']}/wake")
    assert woken["status"] == "running"
    check_service(vm_alice, woken, starts=1)
    vm_alice.exec(sandbox["id"], "sync")  # a crash takes what was not flushed
    kill_machine(vm_stack, sandbox["id"])
    vm_alice.wait_for(sandbox["id"], "hibernated")
    booted = send(vm_alice, "POST", f"sandboxes/{sandbox['id']}/wake")
    assert booted["status"] == "running" and booted["portMap"] == sandbox["portMap"]
    check_service(vm_alice, booted, starts=2)


def test_a_running_service_comes_with_a_template_of_it_and_is_not_started_twice(vm_alice, create):
    first = create()
    name, taken = new_id("hot"), send(vm_alice, "POST", f"sandboxes/{first['id']}/snapshot",
                                      json={})
    send(vm_alice, "POST", f"templates/{name}/latest", json={"snapshotId": taken["id"], **SERVE})
    second = vm_alice.create(templateId=name)
    try:
        check_service(vm_alice, second, starts=1)
    finally:
        send(vm_alice, "DELETE", f"sandboxes/{second['id']}")
        send(vm_alice, "DELETE", f"templates/{name}/latest")


@pytest.fixture
def fault(vm_stack):
    """A fault point of the stack's processes to arm."""
    with fault_point(vm_stack) as armed:
        yield armed


def test_a_worker_that_dies_while_the_service_starts_does_not_start_a_second_one(
        vm_alice, create, fault):
    source = create()
    fault("service.started")
    fork = send(vm_alice, "POST", f"sandboxes/{source['id']}/fork", json=SLOW)
    try:
        vm_alice.wait_for(fork["id"], "running")
        assert fault.reached()
        assert vm_alice.exec(fork["id"], "cat",
                             "/root/starts")["stdout"].count("start") == 2, "the source's and ours"
    finally:
        send(vm_alice, "DELETE", f"sandboxes/{fork['id']}")


def test_another_shape_boots_from_the_disk_and_starts_the_service(vm_alice, create):
    sandbox = create(size="medium")
    check_service(vm_alice, sandbox, starts=1)
    assert vm_alice.exec(sandbox["id"], "nproc")["stdout"].strip() == "2"
    total = int(
        vm_alice.exec(sandbox["id"], "awk", "/MemTotal/ {print $2}", "/proc/meminfo")["stdout"])
    assert 1800 * 1024 < total <= 2048 * 1024
    send(vm_alice, "POST", f"sandboxes/{sandbox['id']}/hibernate")
    check_service(vm_alice, send(vm_alice, "POST", f"sandboxes/{sandbox['id']}/wake"), starts=1)
