"""Which machine a plan gives for what was asked (contract, Sizes)."""
import pytest

from models.states import Plan
from services.errors import InvalidRequest, PlanRequired
from services.plans import PLAN_SIZES, SIZES, choose_size

CASES = [
    (Plan.STARTER, None, None, None, "standard"),
    (Plan.STARTER_PLUS, None, None, None, "standard"),
    (Plan.PERSONAL, None, None, None, "pro"),
    (Plan.PRO, None, None, None, "xlarge"),
    (Plan.ALWAYS_ON, None, None, None, "fleet"),
    (Plan.LEGACY_PRO, None, None, None, "small"),
    (Plan.LEGACY_MAX, "large", None, None, "large"),
    (Plan.LEGACY_PRO, None, 2, 2048, "medium"),
    (Plan.LEGACY_PRO, "small", 4, 4096, "small"),
    (Plan.PERSONAL, "pro", 1, 1, "pro"),
    (Plan.STARTER, None, 2, 4096, "standard"),
]


@pytest.mark.parametrize(("plan", "size", "vcpus", "mem_mb", "expected"), CASES)
def test_the_machine_a_plan_gives(plan, size, vcpus, mem_mb, expected):
    assert choose_size(plan, size, vcpus, mem_mb).name == expected


@pytest.mark.parametrize("size", [None, "small", "fleet"])
def test_a_free_account_gets_none(size):
    with pytest.raises(PlanRequired):
        choose_size(Plan.FREE, size, None, None)


@pytest.mark.parametrize("plan", list(PLAN_SIZES))
def test_every_size_outside_a_plan_is_refused(plan):
    for size in set(SIZES) - set(PLAN_SIZES[plan]):
        with pytest.raises(PlanRequired):
            choose_size(plan, size, None, None)


@pytest.mark.parametrize(("vcpus", "mem_mb"), [(1, None), (None, 1024), (1, 2048), (0, 0), (3, 1024)])
def test_a_pair_that_is_no_row_is_unsupported(vcpus, mem_mb):
    with pytest.raises(InvalidRequest, match="^unsupported shape$"):
        choose_size(Plan.LEGACY_PRO, None, vcpus, mem_mb)


def test_an_unknown_size_is_named():
    with pytest.raises(InvalidRequest, match="tiny"):
        choose_size(Plan.LEGACY_PRO, "tiny", None, None)
