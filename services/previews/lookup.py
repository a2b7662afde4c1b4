"""Says what a preview host leads to: one statement for as many hosts as are asked for at once."""
from collections.abc import Sequence
from dataclasses import dataclass

from models.database import connection, database
from models.states import CAPTURES, OperationKind, SandboxStatus
from services.operations.usable_during import USABLE_DURING

# Operations after which a guest is reached as before.
CHANGING_NOTHING = (*CAPTURES, OperationKind.GROW)
_FIND = """
SELECT h.label, s.id, s.owner_id, s.status, s.task, s.op_seq, n.address, b.host_port, h.guest_port
FROM preview_hosts h JOIN sandboxes s ON s.id = h.sandbox_id
LEFT JOIN port_bindings b ON b.sandbox_id = s.id AND b.guest_port = h.guest_port
LEFT JOIN nodes n ON n.id = s.node_id
WHERE h.label = ANY(%s)
"""


@dataclass(frozen=True)
class Target:
    """A port of a sandbox as its rows are: its node forwards `host_port` of `address` to
    `guest_port` of the guest while that runs."""

    sandbox_id: str
    owner_id: str
    status: str
    task: str | None
    op_seq: int
    address: str | None
    host_port: int | None
    guest_port: int

    @property
    def is_stopped(self) -> bool:
        """True if nothing will ever answer there again."""
        return self.status == SandboxStatus.STOPPED or self.host_port is None

    @property
    def is_up(self) -> bool:
        """True if the guest runs, and nothing is done to it that ends that."""
        return (self.status == SandboxStatus.RUNNING and not self.is_stopped
                and (self.task is None or self.task in USABLE_DURING))

    @property
    def is_settled(self) -> bool:
        """True if nothing is under way that could open the port."""
        return self.task is None or self.task in CHANGING_NOTHING


def find_targets(labels: Sequence[str]) -> dict[str, Target]:
    """What each of the hosts that exist leads to, by its first label."""
    with connection():
        rows = database.execute_sql(_FIND, (list(labels),)).fetchall()
    return {label: Target(*columns) for label, *columns in rows}
