"""What each sandbox has used, as the hosts account for it: it only grows, and nothing is counted
twice.

A host reads two counters of a *run*, the life of one VM process: CPU time and age. Both begin at 0
and come from the host's own clocks, so neither a guest nor a clock that is set back can change
them, and a reading may be repeated, late or missing: 1. A reading of the run that is being counted
adds what its counters have grown by since the highest reading of it. 2. A reading of another run
begins to count that one, but only if the run that was being counted before the host was asked is
still the one: a late reading of a run that is over adds nothing. 3. CPU time counts from the
beginning of a run, running time from the moment the sandbox is `running`: boots and wakes under way
are not counted. What a run did after its last reading is lost with its process.

A sandbox's usage and its owner's tally are one transaction. Locks: usage rows come last and in the
order of their ids.
"""
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any, Protocol

import peewee

from models.database import ROW_LOCK, connection, database, now, relaxed_transaction
from models.row import Statement
from models.sandboxes import Sandbox
from models.states import SandboxStatus
from models.usage import SandboxUsage, UsageTally

BATCH = 200
# A share of a CPU over less time than this says nothing.
_SHORTEST_SHARE_MS = 1000
_RUNS = Sandbox.status == SandboxStatus.RUNNING


class Reading(Protocol):
    """What a host's counters of one run say: CPU time and age in milliseconds. The hypervisor's
    `UsageReading` is one."""

    @property
    def run(self) -> str:
        """Name of the run; no two runs have the same."""

    @property
    def cpu_ms(self) -> int:
        """CPU time since the run began."""

    @property
    def age_ms(self) -> int:
        """Time since the run began."""


@dataclass(frozen=True)
class Counted:
    """How far a run has been counted: the highest counters that were read of it."""

    run: str
    cpu_ms: int
    age_ms: int


@dataclass(frozen=True)
class Sample:
    """A reading of a sandbox; `rate` is its list price (`services.metering.prices`), `seen_run` the
    run that was being counted before the host was asked."""

    sandbox_id: str
    owner_id: str
    rate: int
    seen_run: str | None
    reading: Reading


@dataclass(frozen=True)
class Metered:
    """A sandbox that runs on a node, as a node needs it to take a sample."""

    sandbox_id: str
    owner_id: str
    vcpus: int
    mem_mb: int
    seen_run: str | None


@dataclass(frozen=True)
class Growth:
    """What a reading adds, and how far the run has got with it. `cpu_permille` is what it used of a
    CPU since the reading before, in thousandths; None if that was less than a second ago."""

    cpu_ms: int
    wall_clock_ms: int
    counted: Counted
    cpu_permille: int | None = None


def growth(counted: Counted | None, reading: Reading, *, running: bool) -> Growth:
    """What `reading` adds to a sandbox whose run was `counted` so far; `running` is its status
    until now."""
    if counted is None or counted.run != reading.run:
        first = Counted(reading.run, reading.cpu_ms, reading.age_ms)
        return Growth(reading.cpu_ms, 0, first, cpu_permille=0)
    highest = Counted(reading.run, max(counted.cpu_ms, reading.cpu_ms),
                      max(counted.age_ms, reading.age_ms))
    cpu_ms, passed_ms = highest.cpu_ms - counted.cpu_ms, highest.age_ms - counted.age_ms
    share = cpu_ms * 1000 // passed_ms if passed_ms >= _SHORTEST_SHARE_MS else None
    return Growth(cpu_ms, passed_ms if running else 0, highest, share)


def month_of(moment: datetime) -> date:
    """The calendar month (UTC) of an aware moment, as its first day."""
    return moment.astimezone(timezone.utc).date().replace(day=1)


def metered_query(moment: Any) -> Any:
    """The running sandboxes of all nodes, at any moment."""
    return Sandbox.select().where(_RUNS)


def list_metered(node_id: str, sandbox_id: str | None = None) -> list[Metered]:
    """The running sandboxes of a node, or just one of them; ask this before the host is read."""
    wanted = (Sandbox.node_id == node_id) & _RUNS
    if sandbox_id is not None:
        wanted &= Sandbox.id == sandbox_id
    columns = (Sandbox.id, Sandbox.owner, Sandbox.vcpus, Sandbox.mem_mb, SandboxUsage.run)
    with connection():
        rows = Sandbox.select(*columns).left_outer_join(SandboxUsage,
                                                        on=SandboxUsage.sandbox_id == Sandbox.id)
        return [Metered(*row) for row in rows.where(wanted).order_by(Sandbox.id).tuples()]


def record(samples: Sequence[Sample]) -> None:
    """Count samples of running sandboxes.

    Does not wait for the disk: what a crash of the database loses the next reading brings back.
    """
    ordered = sorted(samples, key=lambda sample: sample.sandbox_id)
    with connection():
        for first in range(0, len(ordered), BATCH):
            with relaxed_transaction():
                _count(ordered[first:first + BATCH])


def record_end_of_operation(sample: Sample, *, running: bool) -> None:
    """Count a reading taken under the claim of an operation, in the transaction that ends it;
    `running` is the status until now. A reading under a claim is never late, so another run is
    counted whatever was counted before."""
    with nullcontext() if database.in_transaction() else database.atomic():
        _count([sample], running=running, under_claim=True)


def _count(samples: Sequence[Sample], *, running: bool = True, under_claim: bool = False) -> None:
    rows = _locked_rows([sample.sandbox_id for sample in samples])
    grown = []
    for sample in samples:
        row = rows[sample.sandbox_id]
        if row.run == sample.reading.run or row.run == sample.seen_run or under_claim:
            counted = Counted(row.run, row.run_cpu_ms,
                              row.run_age_ms) if row.run is not None else None
            grown.append((sample, growth(counted, sample.reading, running=running)))
    if grown:
        _store(grown)


def _locked_rows(ids: Sequence[str]) -> dict[str, SandboxUsage]:
    """The usage rows of these sandboxes, locked; those that were never counted get one."""
    rows = {row.sandbox_id: row for row in _LOCKED.all(list(ids))}
    new = [{"sandbox_id": sandbox_id} for sandbox_id in ids if sandbox_id not in rows]
    if new:
        made = SandboxUsage.insert_many(new).on_conflict_ignore().returning(SandboxUsage)
        rows |= {row.sandbox_id: row for row in made.execute()}
    if len(rows) < len(ids):  # somebody else has made one meanwhile
        rows = {row.sandbox_id: row for row in _LOCKED.all(list(ids))}
    return rows


_LOCKED = Statement(SandboxUsage, lambda ids: SandboxUsage.select().where(
    SandboxUsage.sandbox_id == peewee.fn.ANY(ids)
).order_by(SandboxUsage.sandbox_id).for_update(ROW_LOCK))


_STORE = """
UPDATE sandbox_usage AS kept SET
    run = new.run, run_cpu_ms = new.run_cpu_ms, run_age_ms = new.run_age_ms, sampled_at = %s,
    cpu_ms = kept.cpu_ms + new.cpu_ms, wall_clock_ms = kept.wall_clock_ms + new.wall_clock_ms,
    cost = kept.cost + new.cost, cpu_permille = COALESCE(new.cpu_permille, kept.cpu_permille)
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
            %s::numeric[], %s::integer[])
    AS new (sandbox_id, run, run_cpu_ms, run_age_ms, cpu_ms, wall_clock_ms, cost, cpu_permille)
WHERE kept.sandbox_id = new.sandbox_id
"""


def _store(grown: list[tuple[Sample, Growth]]) -> None:
    present = now()
    lines = [
        (sample.sandbox_id, more.counted.run, more.counted.cpu_ms, more.counted.age_ms, more.cpu_ms,
         more.wall_clock_ms, more.wall_clock_ms * sample.rate, more.cpu_permille)
        for sample, more in grown
    ]
    database.execute_sql(_STORE, (present, *map(list, zip(*lines))))
    owners: dict[str, tuple[int, int]] = {}
    for sample, more in grown:
        passed_ms, cost = owners.get(sample.owner_id, (0, 0))
        owners[sample.owner_id] = (
            passed_ms + more.wall_clock_ms, cost + more.wall_clock_ms * sample.rate,
        )
    tallies = [
        {"owner_id": owner_id, "month": month_of(present), "wall_clock_ms": passed_ms, "cost": cost}
        for owner_id, (passed_ms, cost) in owners.items() if passed_ms
    ]
    if tallies:
        UsageTally.insert_many(tallies).execute()
