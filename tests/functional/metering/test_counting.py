"""Counting usage in the rows: repeated, late, parallel and interrupted readings, totals, and rates
that change."""
import threading
from decimal import Decimal

import pytest

from models.database import connection, database, now
from models.sandboxes import Sandbox
from models.usage import SandboxUsage, UsageTally
from nodeworker.hypervisor.host_facts import UsageReading
from services.hosts.nodes import heartbeat
from services.metering import counting, totals
from services.metering.counting import Sample
from tests.stack.edge import NODE

RATE = 100_000


@pytest.fixture
def boxes(edge, owner):
    """Three running sandboxes of one owner."""
    headers = edge.key(owner)
    heartbeat(NODE)
    made = [edge.api.post("/v1/sandboxes", json={}, headers=headers).json["id"] for _ in range(3)]
    with connection():
        Sandbox.update(status="running", task=None).where(Sandbox.id.in_(made)).execute()
    return made


def sample(owner, box, run, cpu_ms, age_ms, seen=None, rate=RATE):
    return Sample(box, owner.id, rate, seen, UsageReading(run, cpu_ms, age_ms))


def begin(owner, box, run="a", age_ms=0):
    """As the operation that made the sandbox run ends."""
    with connection():
        counting.record_end_of_operation(sample(owner, box, run, 0, age_ms), running=False)


def counted(box):
    with connection():
        row = SandboxUsage.get_by_id(box)
    return row.cpu_ms, row.wall_clock_ms


def total(owner):
    with connection():
        return totals.used(owner.id)


def test_running_time_counts_from_running_on_and_cpu_time_from_the_start(owner, boxes):
    with connection():
        counting.record_end_of_operation(sample(owner, boxes[0], "a", 700, 4000), running=False)
    assert counted(boxes[0]) == (700, 0)
    counting.record([sample(owner, boxes[0], "a", 900, 9000, "a")])
    assert counted(boxes[0]) == (900, 5000)


def test_it_sums_over_runs_and_a_repeated_or_late_reading_adds_nothing(owner, boxes):
    box = boxes[0]
    begin(owner, box)
    counting.record([sample(owner, box, "a", 100, 1000, "a")])
    counting.record([sample(owner, box, "a", 100, 1000, "a")])
    begin(owner, box, "b")
    counting.record([sample(owner, box, "b", 50, 600, "b")])
    for late in (sample(owner, box, "a", 150, 1900, "a"), sample(owner, box, "a", 150, 1900, None),
                 sample(owner, box, "b", 40, 500, "b")):
        counting.record([late])
    assert counted(box) == (150, 1600)


def test_a_run_nobody_announced_counts_its_cpu_time_and_is_timed_from_first_sight(owner, boxes):
    begin(owner, boxes[0])
    counting.record(
        [sample(owner, boxes[0], "b", 30, 7000, "a"),
         sample(owner, boxes[1], "c", 20, 9000)])
    assert (counted(boxes[0]), counted(boxes[1])) == ((30, 0), (20, 0))
    counting.record(
        [sample(owner, boxes[0], "b", 31, 7100, "b"),
         sample(owner, boxes[1], "c", 21, 9100, "c")])
    assert (counted(boxes[0]), counted(boxes[1])) == ((31, 100), (21, 100))


def test_an_operation_of_a_running_sandbox_does_not_stop_its_clock(owner, boxes):
    begin(owner, boxes[0])
    with connection():
        counting.record_end_of_operation(sample(owner, boxes[0], "a", 10, 5000), running=True)
    assert counted(boxes[0]) == (10, 5000)


def test_workers_that_sample_at_once_count_everything_once(edge, owner, boxes):
    for box in boxes:
        begin(owner, box)
    failures = []

    def work(worker):
        try:
            for step in range(1, 41):
                order = boxes if worker % 2 else boxes[::-1]
                counting.record(
                    [sample(owner, box, "a", step * 10, step * 1000, "a") for box in order])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [counted(box) for box in boxes] == [(400, 40_000)] * 3
    assert total(owner) == totals.Used(120_000, Decimal(120_000 * RATE))


def test_more_than_a_batch_is_counted_in_several(owner, boxes, monkeypatch):
    monkeypatch.setattr(counting, "BATCH", 2)
    for box in boxes:
        begin(owner, box)
    counting.record([sample(owner, box, "a", 5, 1000, "a") for box in boxes])
    assert [counted(box) for box in boxes] == [(5, 1000)] * 3 and total(owner).wall_clock_ms == 3000


def test_totals_are_the_sum_of_all_sandboxes_the_stopped_ones_too_and_stay_so_when_summed_up(
        edge, owner, boxes):
    for number, box in enumerate(boxes, 1):
        begin(owner, box)
        for step in range(1, 6):
            counting.record([sample(owner, box, "a", step, step * 1000 * number, "a")])
    with connection():
        Sandbox.update(status="stopped").where(Sandbox.id == boxes[0]).execute()
    before = total(owner)
    assert before.wall_clock_ms == sum(counted(box)[1] for box in boxes) == 30_000
    with connection():
        assert UsageTally.select().where(UsageTally.owner_id == owner.id).count() == 15
    for _ in range(2):
        totals.sum_up()
        assert total(owner) == before
        with connection():
            assert UsageTally.select().where(UsageTally.owner_id == owner.id).count() == 1
    counting.record([sample(owner, boxes[2], "a", 9, 16_000, "a")])
    totals.sum_up()
    assert total(owner).wall_clock_ms == 31_000


def test_more_owners_than_a_batch_are_all_summed_up(edge, monkeypatch):
    monkeypatch.setattr(totals, "_GROUPS", 2)
    owners = [edge.newcomer().id for _ in range(5)]
    with connection():
        for owner_id in owners * 3:
            UsageTally.create(owner_id=owner_id, month=now().date(), wall_clock_ms=5, cost=1)
    totals.sum_up()
    with connection():
        assert not UsageTally.select().where(~UsageTally.is_sum).exists()
        assert [totals.used(owner_id).wall_clock_ms for owner_id in owners] == [15] * 5


def test_another_rate_holds_from_now_on_and_changes_nothing_that_was_counted(edge, owner, boxes):
    begin(owner, boxes[0])
    counting.record([sample(owner, boxes[0], "a", 1, 3_600_000, "a", rate=50_000)])
    counting.record([sample(owner, boxes[0], "a", 1, 7_200_000, "a", rate=2_000_000)])
    shown = edge.api.get(f"/v1/sandboxes/{boxes[0]}/usage", headers=edge.key(owner)).json
    assert (shown["computeCost"], shown["wallClockMs"], shown["usageSeconds"]) == (
        2.05, 7_200_000, 7200,
    )
    assert total(owner).cost == Decimal(3_600_000) * 2_050_000


def test_a_reading_and_its_tally_are_one_transaction(owner, boxes):
    begin(owner, boxes[0])
    with connection(), database.atomic() as transaction:
        counting.record_end_of_operation(sample(owner, boxes[0], "a", 5, 5000), running=True)
        transaction.rollback()
    assert counted(boxes[0]) == (0, 0) and total(owner).wall_clock_ms == 0


def test_only_what_runs_on_the_node_is_metered(owner, boxes):
    begin(owner, boxes[0])
    with connection():
        Sandbox.update(status="hibernated").where(Sandbox.id == boxes[1]).execute()
    found = {
        one.sandbox_id: one.seen_run
        for one in counting.list_metered("n1")
        if one.owner_id == owner.id
    }
    assert found == {boxes[0]: "a", boxes[2]: None}
    assert counting.list_metered("elsewhere") == []
    assert [one.sandbox_id for one in counting.list_metered("n1", boxes[2])] == [boxes[2]]


def test_a_sandbox_that_was_never_read_has_used_nothing_and_a_stopped_one_can_be_asked(
        edge, owner, boxes):
    headers = edge.key(owner)
    assert edge.api.get(f"/v1/sandboxes/{boxes[0]}/usage", headers=headers).json == {
        "cpuMs": 0, "wallClockMs": 0, "usageSeconds": 0, "usageCost": None, "computeCost": 0,
        "sampledAt": None, "llmCalls": 0, "llmInputTokens": 0, "llmCachedTokens": 0,
        "llmCacheWriteTokens": 0, "llmOutputTokens": 0, "llmCost": 0
    }
    begin(owner, boxes[0])
    counting.record([sample(owner, boxes[0], "a", 77, 1500, "a")])
    with connection():
        Sandbox.update(status="stopped").where(Sandbox.id == boxes[0]).execute()
    shown = edge.api.get(f"/v1/sandboxes/{boxes[0]}/usage", headers=headers).json
    assert (shown["cpuMs"], shown["wallClockMs"]) == (77, 1500) and shown["sampledAt"].endswith("Z")


def test_usage_is_the_owners_and_may_be_pinned(edge, boxes, owner):
    path = f"/v1/sandboxes/{boxes[0]}/usage"
    assert edge.api.get(path, headers=edge.key(edge.newcomer())).status_code == 403
    assert edge.api.get("/v1/sandboxes/unknown/usage", headers=edge.key(owner)).status_code == 404
    assert edge.api.get(path, headers=edge.key(owner) | {"X-Svc-Node": "n2"}).status_code == 421
