"""A node promises more than it has while its machines idle; once it can hardly promise more, the
idlest sleep before their time."""
from dataclasses import replace
from datetime import timedelta

import pytest

from models.database import connection, now
from models.operations import Operation
from models.sandboxes import Activity, Sandbox
from nodeworker.hypervisor.host_facts import UsageReading
from services.hosts.nodes import heartbeat
from services.metering import counting
from services.metering.counting import Sample
from services.protocols import Deps
from services.sandboxes.idle import hibernate_idlest
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue
from tests.stack.edge import NODE

SANDBOXES = "/v1/sandboxes"
# Two small machines are what it has, eight what it promises.
HAS_TWO = replace(NODE, vcpus=2, mem_mb=2048, cpus=2, oversell=4.0)
SCARCE = replace(HAS_TWO, memory_is_scarce=True)


@pytest.fixture
def node(nodeless, owner):
    """Makes so many running sandboxes of `owner` on the node, which has none but these and says
    `facts`; their ids, the least lately used first."""
    with connection():
        Operation.delete().execute()
        Sandbox.update(status="stopped", task=None).execute()
    heartbeat(HAS_TWO)

    def fill(count, facts=HAS_TWO, unused_s=180):
        made = [create(nodeless, owner).json["id"] for _ in range(count)]
        with connection():
            Operation.delete().execute()
            for age, sandbox_id in enumerate(reversed(made)):
                used_at = now() - timedelta(seconds=unused_s + age)
                Sandbox.update(
                    status="running", task=None, last_active_at=used_at,
                    idle_at=used_at + timedelta(seconds=600), idle_timeout_s=600,
                ).where(Sandbox.id == sandbox_id).execute()
        heartbeat(facts)
        return made

    return fill


def create(nodeless, owner, **size):
    return nodeless.api.post(SANDBOXES, json={"vcpus": 1, "memMb": 1024, **size},
                             headers=nodeless.key(owner))


def use_cpu(owner, sandbox_id, cpu_ms):
    """Let the machine have used that much in the last second."""
    for seen, cpu, age in ((None, 0, 0), ("run", cpu_ms, 1000)):
        reading = UsageReading("run", cpu, age)
        counting.record([Sample(sandbox_id, owner.id, 1, seen, reading)])


def falling_asleep():
    with connection():
        return {row.id for row in Sandbox.select().where(Sandbox.task == "hibernate")}


@pytest.fixture
def deps(nodeless):
    """What the rules take; messages stay here."""
    return Deps(nodeless.settings, ListQueue(), no_guest)


def test_while_machines_idle_it_takes_several_times_what_it_has(nodeless, owner, node):
    node(8)
    refused = create(nodeless, owner)
    assert refused.status_code == 503 and "n1 has 0 vCPUs and 0 MB free" in refused.json["error"]
    assert int(refused.headers["Retry-After"]) > 0


def test_one_machine_is_never_larger_than_what_it_has(nodeless, owner, node):
    node(0)
    refused = create(nodeless, owner, vcpus=4, memMb=4096)
    assert refused.status_code == 503 and "may promise 2 vCPUs and 2048 MB" in refused.json["error"]


@pytest.mark.parametrize(("used_ms", "status"), [(700, 201), (800, 503)])
def test_machines_that_use_most_of_its_cpus_end_that(nodeless, owner, node, used_ms, status):
    for sandbox_id in node(2):
        use_cpu(owner, sandbox_id, used_ms)
    answer = create(nodeless, owner)
    assert answer.status_code == status
    if status == 503:
        assert "free because its machines use most of its CPUs." in answer.json["error"]


def test_what_it_has_it_promises_whatever_they_use(nodeless, owner, node):
    use_cpu(owner, *node(1), cpu_ms=2000)
    heartbeat(SCARCE)
    assert create(nodeless, owner).status_code == 201
    assert create(nodeless, owner).status_code == 503


def test_scarce_memory_ends_that_for_wakes_too(nodeless, owner, node):
    asleep, *_ = node(3, SCARCE)
    with connection():
        Sandbox.update(status="hibernated").where(Sandbox.id == asleep).execute()
    for answer in (create(nodeless, owner),
                   nodeless.api.post(f"{SANDBOXES}/{asleep}/wake", headers=nodeless.key(owner))):
        assert answer.status_code == 503
        assert "free because its memory is scarce." in answer.json["error"]
    heartbeat(HAS_TWO)
    assert create(nodeless, owner).status_code == 201


def test_strained_it_lets_the_idlest_sleep_and_then_takes_more(nodeless, owner, node, deps):
    made = node(8)
    assert hibernate_idlest(deps, HAS_TWO, unused_s=120) == 1 and falling_asleep() == {made[0]}
    assert hibernate_idlest(deps, HAS_TWO, unused_s=120) == 0, "that one is enough"
    with connection():
        Sandbox.update(task=None, status="hibernated").where(Sandbox.task == "hibernate").execute()
    assert hibernate_idlest(deps, HAS_TWO, unused_s=120) == 0, "it has room again"
    assert create(nodeless, owner).status_code == 201


def test_scarce_memory_lets_them_sleep_until_there_is_room(node, deps):
    made = node(8, SCARCE)
    assert hibernate_idlest(deps, SCARCE, unused_s=120) == 4 and falling_asleep() == set(made[:4])
    assert hibernate_idlest(deps, SCARCE, unused_s=120) == 0, "so many at a time"
    with connection():
        Sandbox.update(task=None, status="hibernated").where(Sandbox.task == "hibernate").execute()
    assert hibernate_idlest(deps, SCARCE, unused_s=120) == 3 and falling_asleep() == set(made[4:7])


def test_what_is_used_or_was_lately_stays_awake(owner, node, deps):
    builds, calls, lately, idle = node(4, SCARCE)
    present = now()
    with connection():
        Sandbox.update(kind="builder").where(Sandbox.id == builds).execute()
        Activity.create(sandbox_id=calls, expires_at=present + timedelta(seconds=60))
        Sandbox.update(idle_at=present + timedelta(seconds=600 - 100)).where(
            Sandbox.id == lately).execute()
    assert hibernate_idlest(deps, SCARCE, unused_s=120) == 1 and falling_asleep() == {idle}


@pytest.mark.parametrize(("count", "facts"), [
    (1, SCARCE),
    (7, HAS_TWO),
    (8, replace(HAS_TWO, vcpus=8, mem_mb=8192, oversell=1.0, memory_is_scarce=True)),
], ids=["less than it has", "room left", "never promises more"])
def test_nobody_sleeps_early(node, deps, count, facts):
    node(count, facts)
    assert hibernate_idlest(deps, facts, unused_s=120) == 0 and not falling_asleep()


@pytest.mark.parametrize("count", [2, 4])
def test_busy_cpus_let_what_does_not_work_sleep_until_there_is_room(
        nodeless, owner, node, deps, count):
    working, *idle = node(count)
    use_cpu(owner, working, 1600)
    assert create(nodeless, owner).status_code == 503
    assert hibernate_idlest(deps, HAS_TWO, unused_s=120) == count - 1
    assert falling_asleep() == set(idle)
    with connection():
        Sandbox.update(task=None, status="hibernated").where(Sandbox.task == "hibernate").execute()
    assert create(nodeless, owner).status_code == 201


def test_what_works_stays_awake_although_nobody_calls_it(owner, node, deps):
    working, *idle = node(8)
    use_cpu(owner, working, 100)
    assert hibernate_idlest(deps, HAS_TWO, unused_s=120) == 1 and falling_asleep() == {idle[0]}


@pytest.mark.parametrize(("free_mb", "taken"), [(4 * 1024, 4), (2 * 1024 + 6 * 256, 8)])
def test_machines_beyond_its_memory_take_a_share_of_its_disk(
        nodeless, owner, node, free_mb, taken):
    """Two have all of theirs; with a share of 1 each further one takes as much."""
    node(0)
    share = 1.0 if taken == 4 else 0.25
    heartbeat(replace(HAS_TWO, disk_mb=100_000, disk_free_mb=4_000 + free_mb, disk_floor_mb=4_000,
                      ram_share=share))
    for _ in range(taken):
        assert create(nodeless, owner).status_code == 201
    assert create(nodeless, owner).status_code == 503
