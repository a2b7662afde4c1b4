"""Says for whom a call is made: the sandbox that holds the address it came from.

1. The secret in the URL must be one that we made. 2. The caller is the sandbox that has the source
address on this node; no guest can send from another's. 3. The secret must be its own, or one of a
sandbox that it was copied from: a process that came over with the memory keeps its source's URL.
Then the copy is billed, as it is the copy that calls. So the secret of a sandbox that is stopped
opens nothing by itself.
"""
from dataclasses import dataclass, field

from config.settings import Settings
from models.database import connection, database
from models.users import User
from services.errors import Forbidden
from services.guests.address_holder import find_holder
from services.llm.sandbox_url import sandbox_of

_COLUMNS = "s.id, s.owner_id, s.preferred_model, u.plan, u.email, u.disabled_at IS NOT NULL"
_OWNER = "JOIN users u ON u.id = s.owner_id"
_IS_COPY = """
WITH RECURSIVE line (id) AS (
    SELECT t.source_sandbox_id FROM sandboxes s JOIN snapshots t ON t.id = s.snapshot_id
    WHERE s.id = %s
    UNION
    SELECT t.source_sandbox_id FROM line JOIN sandboxes s ON s.id = line.id
    JOIN snapshots t ON t.id = s.snapshot_id
)
SELECT EXISTS (SELECT FROM line WHERE id = %s)
"""


@dataclass(frozen=True)
class LlmCaller:
    """Who pays for a call. `sandbox_id` is None for a call on the API host; `plan` and
    `owner_email` choose the owner's limits."""

    owner_id: str
    sandbox_id: str | None = None
    preferred_model: str = ""
    plan: str = ""
    owner_email: str = field(default="", repr=False)


def find_caller(settings: Settings, source_address: str, secret: str) -> LlmCaller:
    """The caller of a request that came to this node's gateway from `source_address` with `secret`
    in its URL. May be kept for a second or two.

    Raises Forbidden, the same whatever is wrong; Unavailable where a good secret comes from an
    address that nobody has yet.
    """
    named = sandbox_of(settings, secret)
    if named is None:
        raise _refused()
    with connection():
        holder = find_holder(settings, source_address, _COLUMNS, _OWNER)
        if holder is None:
            raise _refused()
        sandbox_id, owner_id, model, plan, email, is_disabled = holder
        if is_disabled:
            raise _refused()
        if named != sandbox_id and not database.execute_sql(
                _IS_COPY, (sandbox_id, named)).fetchone()[0]:
            raise _refused()
    return LlmCaller(owner_id, sandbox_id, model, plan, email)


def caller_of_service(subject: str, owner: User | None) -> LlmCaller:
    """The caller of a request on the API host: the account that a service acts for, else the
    service itself."""
    if owner is None:
        return LlmCaller(subject)
    return LlmCaller(owner.id, plan=owner.plan, owner_email=owner.email)


def _refused() -> Forbidden:
    return Forbidden("This address of the LLM proxy is not for this sandbox.")
