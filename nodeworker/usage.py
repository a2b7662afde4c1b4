"""Reads what the sandboxes of this host have used and has it counted; the rules are in
`services.metering.counting`.

Sandboxes are read at every tick, before an operation that may end their process, and when they
begin to be `running`. A reading that fails costs nothing but time: the counters are the kernel's,
and the next one sees what it missed.
"""
import logging
from dataclasses import replace

from models.database import DatabaseFailed
from models.states import SandboxStatus
from nodeworker.hypervisor.driver import DriverError
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.metering import counting
from services.metering.counting import Metered, Sample
from services.metering.prices import rate_of
from services.sandboxes.outcomes import Outcome

log = logging.getLogger(__name__)


def sample_node(deps: NodeDeps) -> None:
    """Count what every running sandbox of this node has used since it was last read."""
    _record(deps, counting.list_metered(deps.settings.node_id))


def sample_sandbox(deps: NodeDeps, sandbox_id: str) -> None:
    """Count what one sandbox has used if it runs; its process may be about to end. Never fails."""
    try:
        _record(deps, counting.list_metered(deps.settings.node_id, sandbox_id))
    except DatabaseFailed as error:
        log.warning("usage of %s not counted now: %s", sandbox_id, type(error).__name__)


def with_reading(deps: NodeDeps, sandbox: SandboxOnNode, outcome: Outcome) -> Outcome:
    """`outcome` with what is on the host's counters now, if the sandbox runs: from here on its
    running time counts."""
    if outcome.status is not SandboxStatus.RUNNING:
        return outcome
    return replace(outcome, usage=read(deps, sandbox))


def read(deps: NodeDeps, sandbox: SandboxOnNode) -> Sample | None:
    """What is on the host's counters now for a sandbox that is being worked on."""
    metered = Metered(sandbox.id, sandbox.owner_id, sandbox.vcpus, sandbox.mem_mb, None)
    return _read(deps, metered)


def _record(deps: NodeDeps, running: list[Metered]) -> None:
    samples = [_read(deps, metered) for metered in running]
    counting.record([sample for sample in samples if sample is not None])


def _read(deps: NodeDeps, metered: Metered) -> Sample | None:
    try:
        found = deps.driver.read_usage(metered.sandbox_id)
    except DriverError as error:
        log.warning("usage of %s not read: %s", metered.sandbox_id, error)
        return None
    if found is None:
        return None
    rate = rate_of(deps.settings, metered.vcpus, metered.mem_mb)
    return Sample(metered.sandbox_id, metered.owner_id, rate, metered.seen_run, found)
