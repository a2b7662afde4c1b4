"""What one tick of the reconciler saw, on the host and in the rows."""
from dataclasses import dataclass

from nodeworker.hypervisor.driver import VmState

# On the host of a sandbox that sleeps, as it should be.
_AT_REST = (VmState.SAVED, VmState.DISK_ONLY)


@dataclass(frozen=True)
class Look:
    """What one tick saw: the machines on the host first, then the ids of the rows that want one."""

    found: dict[str, VmState]
    wanted: set[str]

    def suspects(self) -> set[str]:
        """Those that could not be asleep and well: without files, or with a machine that is not at
        rest."""
        lively = {name for name, state in self.found.items() if state not in _AT_REST}
        return lively | self.missing()

    def missing(self) -> set[str]:
        """Rows without anything on the host."""
        return self.wanted - self.found.keys()

    def orphans(self) -> set[str]:
        """What is on the host, and no row wants it."""
        return self.found.keys() - self.wanted
