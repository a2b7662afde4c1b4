"""Says which sandbox has an address on this node: no guest can send from another's, so that is who
has sent a request."""
from typing import Any

from config.settings import Settings
from models.database import connection, database
from models.states import OWN_KINDS, SandboxStatus
from services.errors import Unavailable

# The owner of the sandbox `s`. What the service makes for an app belongs to one account, so that
# all builders would have a single share of anything: theirs is that of the app's owner.
OWNER = "coalesce(d.owner_id, s.owner_id)"
OWNER_JOIN = "LEFT JOIN deploys d ON d.app_id = s.app_id AND s.kind IN (%s, %s)"
OWNER_VALUES = tuple(kind.value for kind in OWN_KINDS)
_ALIVE = (SandboxStatus.PROVISIONING.value, SandboxStatus.RUNNING.value)
_HOLDER = """
SELECT {columns} FROM sandboxes s {joins}
WHERE s.node_id = %s AND s.vm_ip = %s AND s.vm_ip <> '' AND s.status IN %s
LIMIT 2
"""


def find_holder(settings: Settings, source_address: str, columns: str, joins: str,
                *values: str) -> tuple[Any, ...] | None:
    """These columns of the sandbox `s` that has the address on this node, and of what is joined to
    it, with `values` for the marks in the joins. None if two have it: then nobody is believed.

    Raises Unavailable for an address that nobody has yet: a sandbox that wakes has its processes a
    moment before its row says so, and may ask again after `retry_after_s`.
    """
    statement = _HOLDER.format(columns=columns, joins=joins)
    with connection():
        found = database.execute_sql(
            statement, (*values, settings.node_id, source_address, _ALIVE)).fetchall()
    if not found:
        raise Unavailable("The sandbox is not up yet.", retry_after_s=1)
    holder: tuple[Any, ...] = found[0]
    return holder if len(found) == 1 else None
