"""Guests have the vCPUs and the RAM they were sold, looked at from inside: restored, cold, woken
and forked."""
import json
import shutil
import time

import pytest

from bin.stack import leftovers
from bin.stack import running as stacks
from tests.stack.database import query
from tests.stack.personas import Persona
from tests.stack.times import BESIDE_GUESTS

NEEDED = ("api", "identity", "control", "relay", "beat", "node-ctl", "node-ops", "node-bulk")
LOOK = """
import json, os
cpus = [line for line in open('/proc/cpuinfo') if line.startswith('processor')]
memory = next(line for line in open('/proc/meminfo') if line.startswith('MemTotal'))
ranges = [line.split()[0].split('-') for line in open('/proc/iomem')
          if line.endswith(': System RAM\\n')]
print(json.dumps({'cpus': len(cpus), 'usable': len(os.sched_getaffinity(0)),
                  'left': int(memory.split()[1]) / 1024,
                  'ram': sum(int(b, 16) - int(a, 16) + 1 for a, b in ranges) / 2**20}))
"""


def check(persona, sandbox_id, vcpus, mem_mb):
    answer = persona.exec(sandbox_id, "python3", "-c", LOOK)
    assert answer["exitCode"] == 0, answer
    found = json.loads(answer["stdout"])
    assert (found["cpus"], found["usable"]) == (vcpus, vcpus)
    assert mem_mb - 1 < found["ram"] <= mem_mb, found
    # Of it the kernel keeps its own image, page structures and, with RAM above 4 GB, 64 MB of
    # bounce buffers.
    assert mem_mb * 0.95 < found["left"] < mem_mb, found


def note(stack, sandbox_id):
    """What the operation that booted it says to operators."""
    return query(stack, "SELECT note FROM operations WHERE sandbox_id = %s AND kind = 'boot'",
                 sandbox_id)[0][0]


def wait_baked(stack, vcpus, mem_mb, timeout_s=200):
    """The phases that were seen until the template was there."""
    deadline = time.monotonic() + timeout_s
    phases = set()
    while True:
        state, phase, error = query(
            stack, "SELECT state, phase, error FROM warm_images WHERE (vcpus, mem_mb) = (%s, %s)",
            vcpus, mem_mb)[0]
        if state == "baked":
            return phases
        assert state != "failed", error
        phases.add(phase)
        assert time.monotonic() < deadline, f"{state} {phase}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def fresh(vm_stack):
    """A node with the same image and no template at all: a template that sandboxes stand on is
    never removed."""
    stack = stacks.private_stack(
        "test-shapes", {
            "SVC_DRIVER": "qemu", "SVC_BAKE_SIZES": "", "SVC_WARM_SPARES": "0", **BESIDE_GUESTS
        }, processes=NEEDED)
    try:
        known, own = vm_stack.settings.image_dir, stack.site.data_dir / "images"
        own.mkdir(mode=0o700)
        (own / "images").symlink_to(known / "images")
        for path in known.glob("*.json"):
            shutil.copy(path, own)
        stack.site.values["SVC_IMAGE_DIR"] = str(own)
        stack.up()
        yield stack
    finally:
        stack.destroy()


@pytest.fixture
def alice(fresh):
    """Alice on the node without templates."""
    persona = Persona(fresh, "ALICE")
    yield persona
    persona.close()


def test_a_restored_guest_has_what_its_size_says(vm_stack, vm_alice):
    small = vm_alice.create(size="small")["id"]
    check(vm_alice, small, 1, 1024)
    assert note(vm_stack, small) is None
    vm_alice.delete(f"/v1/sandboxes/{small}")


def test_a_guest_has_what_its_size_says_cold_woken_forked_and_restored(fresh, alice):
    medium = alice.create(size="medium")["id"]
    check(alice, medium, 2, 2048)
    assert note(fresh, medium).startswith("cold boot")
    for action, status in (("hibernate", "hibernated"), ("wake", "running")):
        assert alice.post(f"/v1/sandboxes/{medium}/{action}").json()["status"] == status
    check(alice, medium, 2, 2048)
    fork = alice.post(f"/v1/sandboxes/{medium}/fork", json={}).json()["id"]
    alice.wait_for(fork, "running")
    check(alice, fork, 2, 2048)
    assert wait_baked(fresh, 2, 2048) & {"booting", "warming up", "saving", "writing to disk"}
    restored = alice.create(vcpus=2, memMb=2048)["id"]
    check(alice, restored, 2, 2048)
    assert note(fresh, restored) is None
    listed = {
        entry["id"]: (entry["vcpus"], entry["memMb"])
        for entry in alice.get("/v1/sandboxes").json()["sandboxes"]
    }
    assert listed == {medium: (2, 2048), fork: (2, 2048), restored: (2, 2048)}
    for sandbox_id in listed:
        alice.delete(f"/v1/sandboxes/{sandbox_id}")


def test_a_guest_with_ram_above_the_4_gb_line_has_all_of_it(fresh, alice):
    """4 vCPUs may also be more than this machine has."""
    large = alice.create(size="large")["id"]
    check(alice, large, 4, 4096)
    for action in ("hibernate", "wake"):
        assert alice.post(f"/v1/sandboxes/{large}/{action}").is_success
    check(alice, large, 4, 4096)
    alice.delete(f"/v1/sandboxes/{large}")


def test_a_stack_that_ends_leaves_no_half_baked_machine(fresh, alice):
    """What the test before wanted may be baked already: then another shape is wanted. The
    fixture's end checks the host."""
    deadline = time.monotonic() + 200
    while not is_begun(fresh):
        assert time.monotonic() < deadline, query(fresh, "SELECT * FROM warm_images")
        if not query(fresh, "SELECT 1 FROM warm_images WHERE state IN ('queued', 'baking')"):
            alice.create(size="small")
        time.sleep(0.05)
    fresh.crash("node-bulk")
    assert leftovers.bakes_of(fresh.settings.net_prefix), "nobody looks after it any more"
    fresh.down()
    assert leftovers.bakes_of(fresh.settings.net_prefix) == {}


def is_begun(stack):
    """A machine is being baked, and for seconds yet."""
    return leftovers.bakes_of(stack.settings.net_prefix) and query(
        stack, "SELECT 1 FROM warm_images WHERE state = 'baking' AND phase = 'booting'")
