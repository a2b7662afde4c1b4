"""Which machine a plan gives for what was asked (contract, Sizes)."""
import pytest

from models.states import Plan
from services.errors import InvalidRequest, PlanRequired
from services.metering.plans import PLAN_SIZES, SIZES, choose_size

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


# The specification's table once more, written out: what each plan answers to each explicit size;
# None is a refusal.
ROWS = {
    "small": (1, 1024), "medium": (2, 2048), "large": (4, 4096), "standard": (2, 4096),
    "pro": (4, 8192), "xlarge": (8, 16384), "fleet": (12, 36864)
}
INCLUDED = {
    "free": set(),
    "starter": {"standard"},
    "starter_plus": {"standard"},
    "personal": {"pro"},
    "pro": {"xlarge"},
    "always_on": {"fleet"},
    "legacy_pro": {"small", "medium", "large"},
    "legacy_max": {"small", "medium", "large"},
}


def outcome(plan, size, vcpus, mem_mb):
    """The shape, or the name of the refusal."""
    try:
        chosen = choose_size(plan, size, vcpus, mem_mb)
    except (InvalidRequest, PlanRequired) as error:
        return type(error).__name__
    return chosen.vcpus, chosen.mem_mb


def test_the_written_table_names_every_plan_and_size():
    assert INCLUDED.keys() == {plan.value for plan in Plan} and ROWS.keys() == SIZES.keys()


@pytest.mark.parametrize("plan", INCLUDED)
@pytest.mark.parametrize("size", ROWS)
def test_every_plan_with_every_size(plan, size):
    expected = ROWS[size] if size in INCLUDED[plan] else "PlanRequired"
    assert outcome(plan, size, None, None) == expected
    assert outcome(plan, None, *ROWS[size]) == expected, "the exact pair is as good as the name"
    for pair in ((3, 999), (1, None), (None, 1024), ROWS["fleet"]):
        assert outcome(plan, size,
                       *pair) == expected, "the name wins over whatever stands beside it"


@pytest.mark.parametrize("plan", INCLUDED)
def test_no_other_pair_is_a_shape_on_any_plan(plan):
    numbers = {value for row in ROWS.values() for value in row} | {0, 3, 2**40}
    for vcpus in (None, *numbers):
        for mem_mb in (None, *numbers):
            if (vcpus, mem_mb) not in ROWS.values() and (vcpus, mem_mb) != (None, None):
                assert outcome(plan, None, vcpus, mem_mb) == "InvalidRequest", (vcpus, mem_mb)


@pytest.mark.parametrize("size", [None, "small", "fleet"])
def test_a_free_account_gets_none(size):
    with pytest.raises(PlanRequired):
        choose_size(Plan.FREE, size, None, None)


@pytest.mark.parametrize("plan", list(PLAN_SIZES))
def test_every_size_outside_a_plan_is_refused(plan):
    for size in set(SIZES) - set(PLAN_SIZES[plan]):
        with pytest.raises(PlanRequired):
            choose_size(plan, size, None, None)


@pytest.mark.parametrize(("vcpus", "mem_mb"), [(1, None), (None, 1024), (1, 2048), (0, 0),
                                               (3, 1024)])
def test_a_pair_that_is_no_row_is_unsupported(vcpus, mem_mb):
    with pytest.raises(InvalidRequest, match="^unsupported shape$"):
        choose_size(Plan.LEGACY_PRO, None, vcpus, mem_mb)


def test_an_unknown_size_is_named():
    with pytest.raises(InvalidRequest, match="tiny"):
        choose_size(Plan.LEGACY_PRO, "tiny", None, None)
