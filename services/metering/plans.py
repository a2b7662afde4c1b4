"""Plans and machine shapes (contract, Sizes)."""
from dataclasses import dataclass

from models.states import Plan
from services.errors import InvalidRequest, PlanRequired


@dataclass(frozen=True)
class Size:
    """A row of the contract's table: `vcpus` CPUs and `mem_mb` MiB of RAM."""

    name: str
    vcpus: int
    mem_mb: int


SIZES = {
    size.name: size
    for size in (
        Size("small", 1, 1024),
        Size("medium", 2, 2048),
        Size("large", 4, 4096),
        Size("standard", 2, 4096),
        Size("pro", 4, 8192),
        Size("xlarge", 8, 16384),
        Size("fleet", 12, 36864),
    )
}
_LEGACY = ("small", "medium", "large")

# The first size is the plan's default; a plan not listed includes no machine.
PLAN_SIZES: dict[Plan, tuple[str, ...]] = {
    Plan.STARTER: ("standard",),
    Plan.STARTER_PLUS: ("standard",),
    Plan.PERSONAL: ("pro",),
    Plan.PRO: ("xlarge",),
    Plan.ALWAYS_ON: ("fleet",),
    Plan.LEGACY_PRO: _LEGACY,
    Plan.LEGACY_MAX: _LEGACY,
}


def choose_size(plan: str, size: str | None, vcpus: int | None, mem_mb: int | None) -> Size:
    """The machine an account on `plan` gets for what it asked (contract, Sizes rules 1 to 4).

    Raises InvalidRequest for an unknown size or an unsupported pair, PlanRequired when the plan
    does not include it.
    """
    wanted = _requested(size, vcpus, mem_mb)
    included = PLAN_SIZES.get(Plan(plan), ())
    if not included:
        raise PlanRequired(
            "Creating sandboxes needs a paid Computer plan; this account is on the free plan.")
    if not wanted:
        return SIZES[included[0]]
    for candidate in wanted:
        if candidate.name in included:
            return candidate
    raise PlanRequired(
        f"The size {wanted[0].name} is not included in the plan {plan}; it includes"
        f" {', '.join(included)}."
    )


def included_size(plan: str, vcpus: int, mem_mb: int) -> Size | None:
    """The machine of exactly this shape, if `plan` includes it."""
    included = [SIZES[name] for name in PLAN_SIZES.get(Plan(plan), ())]
    return next((size for size in included if (size.vcpus, size.mem_mb) == (vcpus, mem_mb)), None)


def size_name(vcpus: int, mem_mb: int) -> str:
    """The name of a shape; `custom` for one that is no size (any more)."""
    return next(
        (size.name for size in SIZES.values() if (size.vcpus, size.mem_mb) == (vcpus, mem_mb)),
        "custom")


def check_fork(plan: str, vcpus: int, mem_mb: int) -> None:
    """A fork has its snapshot's shape, so the plan has to include a machine at least as large
    (contract, States).

    Raises PlanRequired.
    """
    included = [SIZES[name] for name in PLAN_SIZES.get(Plan(plan), ())]
    if not any(size.vcpus >= vcpus and size.mem_mb >= mem_mb for size in included):
        raise PlanRequired(
            f"Forking a machine of {vcpus} vCPUs and {mem_mb} MB is not included in the plan"
            f" {plan}."
        )


def _requested(size: str | None, vcpus: int | None, mem_mb: int | None) -> list[Size]:
    if size is not None:
        if size not in SIZES:
            raise InvalidRequest(f"unknown size {size!r}; sizes are {', '.join(SIZES)}")
        return [SIZES[size]]
    if vcpus is None and mem_mb is None:
        return []
    matches = [row for row in SIZES.values() if (row.vcpus, row.mem_mb) == (vcpus, mem_mb)]
    if not matches:
        raise InvalidRequest("unsupported shape")
    return matches
