"""What an owner is told of the usage of one sandbox; how it is counted is in
`services.metering.counting`."""
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from models.database import connection
from models.usage import SandboxUsage
from services.llm import totals
from services.llm.totals import Figures
from services.sandboxes import find
from services.sandboxes.caller import Caller


@dataclass(frozen=True)
class UsageView:
    """What a sandbox has used and what that costs by the list, its calls of LLMs aside, which are
    `llm`; `sampled_at` is None before the first reading."""

    cpu_ms: int
    wall_clock_ms: int
    cost: Decimal
    sampled_at: datetime | None
    llm: Figures


def get_view(caller: Caller, sandbox_id: str) -> UsageView:
    """What a sandbox has used as of its last reading, in whatever state it is; raises as
    `find.get_owned`."""
    with connection():
        find.get_owned(caller, sandbox_id)
        row = SandboxUsage.get_or_none(SandboxUsage.sandbox_id == sandbox_id)
        llm = totals.of_sandbox(caller.owner.id, sandbox_id)
    if row is None:
        return UsageView(0, 0, Decimal(0), None, llm)
    return UsageView(row.cpu_ms, row.wall_clock_ms, row.cost, row.sampled_at, llm)
