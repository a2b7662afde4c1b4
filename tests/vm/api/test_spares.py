"""A node as it is shipped makes spares while it is idle, and creates by the API take them."""
from pathlib import Path

import pytest

from bin.stack import running as stacks
from bin.stack import supervise
from bin.status import list_machines
from nodeworker.hypervisor.qemu.rundir import RunDir
from tests.stack.database import query
from tests.stack.personas import Persona
from tests.stack.times import BESIDE_GUESTS
from tests.stack.waiting import until

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def stack(clean_host):
    processes = [name for name in supervise.procfile() if name != "flower"]
    made = stacks.private_stack("test-ready", {"SVC_DRIVER": "qemu", **BESIDE_GUESTS},
                                processes=processes)
    try:
        made.ensure_images()
        made.up()
        yield made
    finally:
        made.destroy()


@pytest.fixture
def owner(stack):
    persona = Persona(stack, "ALICE")
    yield persona
    persona.close()


def spares(stack):
    [(counts, )] = query(stack, "SELECT stopped_machines FROM nodes")
    return counts.get("spares", 0)


def command_line(stack, sandbox_id):
    """Of the sandbox's process; it goes on naming who it was made as."""
    record = RunDir(stack.settings.node_dir / "sandboxes" / sandbox_id).find_record()
    return Path(f"/proc/{record.pid}/cmdline").read_text().split("\0")


def test_a_create_takes_one_and_the_next_is_made(stack, owner):
    until(lambda: spares(stack) > 0, timeout_s=240)
    assert "stopped: 1 for creates" in list_machines(stack.settings)[-1]
    sandbox_id = owner.create()["id"]
    name = next(word for word in command_line(stack, sandbox_id) if "spare-" in word)
    told = owner.exec(sandbox_id, "sh", "-c", "hostname; echo kept > /dev/shm/memory")
    assert told["stdout"] == f"{sandbox_id}\n"
    fork_id = owner.post(f"/v1/sandboxes/{sandbox_id}/fork", json={}).json()["id"]
    owner.wait_for(fork_id, "running")
    assert owner.post(f"/v1/sandboxes/{sandbox_id}/hibernate").json()["status"] == "hibernated"
    assert owner.post(f"/v1/sandboxes/{sandbox_id}/wake").json()["status"] == "running"
    for each in (sandbox_id, fork_id):
        assert owner.exec(each, "cat", "/dev/shm/memory")["stdout"] == "kept\n"
    for each in (sandbox_id, fork_id):
        assert owner.delete(f"/v1/sandboxes/{each}").status_code == 200
    until(lambda: spares(stack) > 0, timeout_s=240)
    other_id = owner.create()["id"]
    assert next(word for word in command_line(stack, other_id) if "spare-" in word) != name
    assert owner.delete(f"/v1/sandboxes/{other_id}").status_code == 200
    until(lambda: not list((stack.settings.node_dir / "sandboxes").iterdir()), timeout_s=60)
