"""Lists an owner's sandboxes: a page of them, and totals over all.

A page costs what its own rows cost: their ids come from an index alone, the wide rows are read for
these ids only, and the totals come from tallies.
"""
from dataclasses import dataclass

import peewee

from models.database import connection
from models.sandboxes import Sandbox
from models.states import SandboxStatus
from models.usage import SandboxUsage
from models.users import User
from services.llm import totals as llm_totals
from services.llm.totals import Figures
from services.metering import totals
from services.metering.totals import Used

# What no list shows; 64 KiB of variables, or a long command, cost more than all the rest of a row.
_NOT_LISTED = ("env", "agent_token", "start_command")


@dataclass(frozen=True)
class Page:
    """One page of an owner's sandboxes, newest first; each item also has `wall_clock_ms` and
    `cost`. `total` counts what the filters let through, `used` is of all the owner's sandboxes, the
    stopped ones too, and so is `llm`."""

    items: list[Sandbox]
    total: int
    limit: int
    offset: int
    used: Used
    llm: Figures


def list_page(
    owner: User, *, limit: int, offset: int, status: str | None = None, kind: str | None = None
) -> Page:
    """A page of the owner's sandboxes, newest first; stopped ones only when `status` asks for
    them."""
    with connection():
        items = list(page_query(owner.id, limit, offset, status, kind))
        total = totals.count_sandboxes(owner.id, status, kind)
        return Page(items, total, limit, offset, totals.used(owner.id),
                    llm_totals.of_owner(owner.id))


def ids_query(owner_id: str, limit: int, offset: int, status: str | None,
              kind: str | None) -> peewee.ModelSelect:
    """The ids of a page; each combination of filters has an index that begins with them and ends in
    this order."""
    wanted = (Sandbox.owner == owner_id) & (
        Sandbox.status == status if status else Sandbox.status != SandboxStatus.STOPPED
    )
    if kind:
        wanted &= Sandbox.kind == kind
    newest_first = Sandbox.created_at.desc(), Sandbox.id.desc()
    return Sandbox.select(
        Sandbox.id).where(wanted).order_by(*newest_first).limit(limit).offset(offset)


def page_query(owner_id: str, limit: int, offset: int, status: str | None,
               kind: str | None) -> peewee.ModelSelect:
    """The rows of a page with what each has used."""
    page = ids_query(owner_id, limit, offset, status, kind).alias("page")
    wall_clock_ms = peewee.fn.COALESCE(SandboxUsage.wall_clock_ms, 0).alias("wall_clock_ms")
    cost = peewee.fn.COALESCE(SandboxUsage.cost, 0).alias("cost")
    return (
        Sandbox.select(*Sandbox.fields_but(*_NOT_LISTED), wall_clock_ms, cost)
        .join(page, on=Sandbox.id == page.c.id)
        .join(SandboxUsage, peewee.JOIN.LEFT_OUTER, on=SandboxUsage.sandbox_id == Sandbox.id)
        .order_by(Sandbox.created_at.desc(), Sandbox.id.desc())
        .objects()
    )
