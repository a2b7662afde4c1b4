"""A node makes as many spares as it is shipped with while it is idle, and creates by the API take
them; it takes eight machines though it has room for one, as long as they idle."""
import pytest

from bin.stack import running as stacks
from bin.stack.supervision import supervise
from bin.status import list_machines
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.hypervisor.qemu.suspended import warm_spares
from tests.stack.database import query
from tests.stack.personas import Persona
from tests.stack.times import BESIDE_GUESTS
from tests.stack.waiting import until

# A spare is made only while more than one CPU is idle.
pytestmark = [pytest.mark.vm, pytest.mark.alone]


@pytest.fixture(scope="module")
def stack(clean_host):
    processes = [name for name in supervise.procfile() if name != "flower"]
    made = stacks.private_stack(
        "test-ready", {"SVC_DRIVER": "qemu", "SVC_NODE_VCPUS": "1", "SVC_NODE_MEM_MB": "2048",
                       "SVC_STRAINED_IDLE_S": "12", **BESIDE_GUESTS}, processes=processes)
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


def has_spare(stack):
    """Whether one can be taken now: what the node has told of its spares may be seconds old."""
    for ready in (stack.settings.node_dir / "warm").glob("spare-*/ready"):
        with RunDir(ready.parent).nobody_at_work() as is_ours:
            if is_ours and ready.exists():
                return True
    return False


def spare_processes(stack):
    """Process ids of the spares, also of those in the making."""
    records = (RunDir(path).find_record() for path in
               (stack.settings.node_dir / "warm").glob("spare-*"))
    return {record.pid for record in records if record}


def sources_of_spares(stack):
    """What those are made of that stand ready."""
    return {warm_spares.source_of(RunDir(path)) for path in
            (stack.settings.node_dir / "warm").glob("spare-*")}


def process_of(stack, sandbox_id):
    return RunDir(stack.settings.node_dir / "sandboxes" / sandbox_id).find_record().pid


def test_a_create_takes_one_and_the_next_is_made(stack, owner):
    until(lambda: has_spare(stack), timeout_s=240)
    until(lambda: "stopped: 1 for creates" in list_machines(stack.settings)[-1], timeout_s=20)
    spares = spare_processes(stack)
    sandbox_id = owner.create()["id"]
    process = process_of(stack, sandbox_id)
    assert process in spares
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
    until(lambda: has_spare(stack), timeout_s=240)
    spares = spare_processes(stack)
    other_id = owner.create()["id"]
    assert process_of(stack, other_id) in spares - {process}
    assert owner.delete(f"/v1/sandboxes/{other_id}").status_code == 200
    until(lambda: not list((stack.settings.node_dir / "sandboxes").iterdir()), timeout_s=60)


def test_a_template_that_is_used_often_gets_one(stack, owner):
    source = owner.create()["id"]
    owner.exec(source, "sh", "-c", "echo kept > /dev/shm/memory")
    snapshot = owner.post(f"/v1/sandboxes/{source}/snapshot", json={}).json()["id"]
    assert owner.post("/v1/templates/often/latest",
                      json={"snapshotId": snapshot}).status_code == 201
    assert owner.delete(f"/v1/sandboxes/{source}").status_code == 200
    for _ in range(2):
        made = owner.create(templateId="often")["id"]
        assert owner.delete(f"/v1/sandboxes/{made}").status_code == 200
    until(lambda: f"snapshot:{snapshot}" in sources_of_spares(stack), timeout_s=240)
    spares = spare_processes(stack)
    made = owner.create(templateId="often")["id"]
    assert process_of(stack, made) in spares
    assert owner.exec(made, "cat", "/dev/shm/memory")["stdout"] == "kept\n"
    assert owner.delete(f"/v1/sandboxes/{made}").status_code == 200
    assert owner.delete("/v1/templates/often/latest").status_code == 200
    until(lambda: not list((stack.settings.node_dir / "sandboxes").iterdir()), timeout_s=60)


def test_what_has_room_for_one_runs_eight_until_the_idlest_sleeps(stack, owner):
    def patiently(path):
        """Ask again while what has just been started uses the CPUs, as clients do."""
        answers = []
        until(lambda: answers.append(owner.post(path, json={})) or answers[-1].status_code != 503,
              timeout_s=120)
        return answers[-1].json()

    made = []
    for _ in range(8):
        made.append(patiently("/v1/sandboxes")["id"])
        owner.wait_for(made[-1], "running")
        owner.exec(made[-1], "sh", "-c", "echo kept > /dev/shm/memory")
    owner.wait_for(made[0], "hibernated")
    assert patiently(f"/v1/sandboxes/{made[0]}/wake")["status"] == "running"
    told = owner.exec(made[0], "sh", "-c", "timeout 6 sh -c 'while :; do :; done';"
                      " cat /dev/shm/memory")
    assert told["stdout"] == "kept\n"
    [(used, )] = query(stack, "SELECT cpu_permille FROM sandbox_usage WHERE sandbox_id = %s",
                       made[0])
    assert used > 100, "what a machine uses of a CPU is noted"
    for each in made:
        assert owner.delete(f"/v1/sandboxes/{each}").status_code == 200
