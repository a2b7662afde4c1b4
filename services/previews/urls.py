"""Gives a port of a sandbox its preview URL: a host that nobody can guess, and a host port that
leads there.

1. With the sandbox's row locked, the host is looked up or made, and the port bound, both for the
sandbox's life. 2. A sandbox that runs gets the port forwarded by an operation, which nobody waits
for; one that sleeps or boots gets it when it runs, see `services/previews/announce_port.py`.
"""
import base64
import secrets
from dataclasses import dataclass

from config.edge_url import edge_url
from models.database import connection, database
from models.operations import OutboxMessage
from models.sandboxes import PreviewHost, Sandbox
from models.states import SandboxStatus
from services.errors import Conflict
from services.hosts.sandbox_ports import bind_more
from services.operations import outbox
from services.operations.begin import lock_sandbox
from services.previews.announce_port import forward_if_missing
from services.protocols import Deps
from services.sandboxes import find
from services.sandboxes.caller import Caller

_RANDOM_BYTES, _RANDOM_CHARACTERS = 17, 26


@dataclass(frozen=True)
class Preview:
    """Where a port of a sandbox is found on the web."""

    url: str


def get_preview(deps: Deps, caller: Caller, sandbox_id: str, guest_port: int) -> Preview:
    """The preview of a port of the caller's sandbox, the same each time.

    Raises Conflict for a stopped sandbox, InvalidRequest for one port too many, RateLimited,
    Unavailable, and what `find.get_owned` raises.
    """
    find.get_owned(caller, sandbox_id)
    messages: list[OutboxMessage] = []
    with connection():
        with database.atomic():
            sandbox = lock_sandbox(sandbox_id)
            assert sandbox is not None
            if sandbox.status == SandboxStatus.STOPPED:
                raise Conflict("The sandbox is stopped; it has no previews.")
            label = _keep_label(sandbox, guest_port)
            bind_more(deps.settings, sandbox, (guest_port,))
            if sandbox.status == SandboxStatus.RUNNING and sandbox.task is None:
                messages = forward_if_missing(deps, sandbox, guest_port)
        outbox.flush(deps.queue, messages)
    return Preview(edge_url(deps.settings, f"{label}.{deps.settings.preview_domain}"))


def _keep_label(sandbox: Sandbox, guest_port: int) -> str:
    found = PreviewHost.get_or_none((PreviewHost.sandbox_id == sandbox.id)
                                    & (PreviewHost.guest_port == guest_port))
    if found is None:
        found = PreviewHost.create(label=new_label(guest_port), sandbox_id=sandbox.id,
                                   guest_port=guest_port)
    return str(found.label)


def new_label(guest_port: int) -> str:
    """A host's first label: 130 random bits in base32, then the port, for people to read."""
    random = base64.b32encode(secrets.token_bytes(_RANDOM_BYTES)).decode().lower()
    return f"{random[:_RANDOM_CHARACTERS]}-{guest_port}"
