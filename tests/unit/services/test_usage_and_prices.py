"""What a reading of a host's counters adds to a sandbox's usage, and what that costs."""
import random
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from config.settings import Settings, SettingsError, load
from nodeworker import wiring
from services.deploys.builder_size import builder_size
from services.metering import credit, prices
from services.metering.counting import Counted, growth, month_of
from services.metering.plans import SIZES


@pytest.mark.parametrize(("counted", "reading", "running", "cpu_ms", "wall_clock_ms"), [
    (Counted("a", 100, 1000), Counted("a", 150, 6000), True, 50, 5000),
    (Counted("a", 100, 1000), Counted("a", 100, 1000), True, 0, 0),
    (Counted("a", 100, 1000), Counted("a", 90, 900), True, 0, 0),
    (Counted("a", 100, 1000), Counted("a", 130, 0), True, 30, 0),
    (Counted("a", 100, 1000), Counted("a", 150, 6000), False, 50, 0),
    (Counted("a", 100, 1000), Counted("b", 40, 300), False, 40, 0),
    (Counted("a", 100, 1000), Counted("b", 40, 300), True, 40, 0),
    (None, Counted("a", 40, 300), True, 40, 0),
], ids=[
    "grown", "repeated", "late", "ended by itself", "not running yet", "woken", "another process",
    "the first"
])
def test_what_a_reading_adds(counted, reading, running, cpu_ms, wall_clock_ms):
    more = growth(counted, reading, running=running)
    assert (more.cpu_ms, more.wall_clock_ms) == (cpu_ms, wall_clock_ms)


def test_a_run_is_never_counted_below_what_was_read_of_it_once():
    counted = growth(Counted("a", 100, 1000), Counted("a", 90, 2000), running=True).counted
    assert counted == Counted("a", 100, 2000)


def test_readings_of_a_run_add_up_to_the_highest_however_they_come():
    rolls = random.Random(4)
    readings = [
        Counted("a", cpu, age) for cpu, age in zip(range(0, 500, 7), range(1000, 72000, 1000))
    ]
    for _ in range(50):
        shuffled = rolls.choices(readings, k=40) + [readings[-1]]
        rolls.shuffle(shuffled)
        cpu_ms = wall_clock_ms = 0
        counted = readings[0]
        for reading in shuffled:
            more = growth(counted, reading, running=True)
            assert more.cpu_ms >= 0 and more.wall_clock_ms >= 0
            counted, cpu_ms, wall_clock_ms = (
                more.counted, cpu_ms + more.cpu_ms, wall_clock_ms + more.wall_clock_ms,
            )
        assert (cpu_ms, wall_clock_ms) == (readings[-1].cpu_ms,
                                           readings[-1].age_ms - readings[0].age_ms)


def test_a_month_is_utc():
    assert month_of(datetime(2030, 1, 31, 23, 59, tzinfo=timezone.utc)) == date(2030, 1, 1)
    late = datetime(2030, 2, 1, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    assert month_of(late) == date(2030, 1, 1)


def test_every_size_has_a_list_price():
    rates = {
        name: prices.rate_of(Settings(), size.vcpus, size.mem_mb) for name, size in SIZES.items()
    }
    assert rates["small"] == 66_000 and rates["fleet"] == 1_176_000
    assert all(rates.values())


def test_an_hour_costs_its_rate_in_whatever_pieces_it_is_counted():
    rate = prices.rate_of(load({"SVC_LIST_RATES": "small=0.100001"}), 1, 1024)
    pieces = [7, 3_599_993]
    assert sum(piece * rate for piece in pieces) == 3_600_000 * rate
    assert prices.amount(3_600_000 * rate) == 0.100001
    assert prices.amount(Decimal(0)) == 0


def test_a_machine_that_the_list_does_not_name_costs_nothing():
    settings = load({"SVC_LIST_RATES": "small=1"})
    assert [prices.rate_of(settings, *shape) for shape in ((1, 1024), (2, 2048), (3, 1))] == [
        1_000_000, 0, 0,
    ]


@pytest.mark.parametrize("value", [
    "small", "small=", "small=x", "small=-1", "small=nan", "=1", "small=1,small=2",
    "small=0.0000001", "small=1e9"
])
@pytest.mark.parametrize("name", ["SVC_LIST_RATES", "SVC_COMPUTE_CREDIT"])
def test_a_malformed_amount_is_refused_by_name(name, value):
    with pytest.raises(SettingsError, match=name):
        load({name: value})


def test_a_misspelt_size_or_plan_stops_the_process_at_start():
    with pytest.raises(SettingsError, match="smal;"):
        prices.check_rates(load({"SVC_LIST_RATES": "smal=1,large=2"}))
    with pytest.raises(SettingsError, match="prro;"):
        credit.check_plans(load({"SVC_COMPUTE_CREDIT": "prro=1"}))
    with pytest.raises(SettingsError, match="medum;"):
        builder_size(load({"SVC_BUILDER_SIZE": "medum"}))
    prices.check_rates(Settings())
    credit.check_plans(load({"SVC_COMPUTE_CREDIT": "pro=1,free=0"}))


@pytest.mark.parametrize("name", ["SVC_SANDBOX_QUOTA", "SVC_SNAPSHOT_QUOTA",
                                  "SVC_STORAGE_QUOTA_GB"])
def test_a_quota_of_a_misspelt_plan_is_no_missing_quota(name):
    with pytest.raises(SettingsError, match=f"{name} names prro;"):
        credit.check_plans(load({name: "prro=1,pro=2"}))


def test_a_node_does_not_start_with_a_builder_of_no_size(monkeypatch):
    monkeypatch.setattr(wiring, "get_settings", lambda: load({"SVC_BUILDER_SIZE": "medum"}))
    with pytest.raises(SettingsError, match="SVC_BUILDER_SIZE"):
        wiring.get_deps.__wrapped__()


@pytest.mark.parametrize(
    ("plan_amount", "granted", "used", "is_used_up"), [(None, 0, 1e9, False), (None, 5, 1e9, False),
                                                       (10, 0, 9.999999, False), (10, 0, 10, True),
                                                       (10, 5, 14.9, False), (10, 5, 15, True),
                                                       (0, 0, 0, True)])
def test_credit_is_used_up_when_the_cost_reaches_it(plan_amount, granted, used, is_used_up):
    amount = None if plan_amount is None else Decimal(plan_amount)
    assert credit.Credit(date(2030, 1, 1), amount, Decimal(granted), used).is_used_up is is_used_up
