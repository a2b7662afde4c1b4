"""Shows what an app's process has written: the end of a file in the sandbox that serves it.

It is asked for at the guest, which may lie but not delay for long or answer much. A sandbox that
sleeps is not woken for it, and none is kept awake.
"""
from guest.client.errors import AgentError
from models.database import connection
from models.nodes import Node
from models.sandboxes import Sandbox
from models.states import SandboxStatus
from models.users import User
from services.deploys import masked_secrets
from services.deploys.apps.find import get
from services.deploys.apps.process_facts import tail_script
from services.errors import Conflict, Unavailable
from services.protocols import Deps

LINES_MOST, LINES = 5000, 200
BYTES_MOST = 256 * 1024
_TIMEOUT_MS = 5000


def read(deps: Deps, owner: User | None, slug: str, lines: int) -> str:
    """The last `lines` lines of an app's output, at most 256 KiB, without its secrets.

    Raises NotFound, Forbidden, Unavailable, and Conflict for a static app and for one that does not
    run at the moment.
    """
    with connection():
        app = get(owner, slug)
        sandbox = Sandbox.get_or_none(Sandbox.id == app.live_sandbox_id)
        if sandbox is None:
            raise Conflict(f"{slug} has no process of its own, so it writes no log.")
        _check_running(slug, sandbox)
        address = Node.get_by_id(sandbox.node_id).address
    secrets = masked_secrets.get(deps.settings, app.app_id)
    wanted_bytes = BYTES_MOST + secrets.more_bytes
    script = tail_script(wanted_bytes, lines + secrets.more_lines)
    try:
        said = deps.connect_guest(address, sandbox.agent_port, sandbox.agent_token).exec(
            shell=script, cwd="/", env={}, timeout_ms=_TIMEOUT_MS, detached=False,
            cap_bytes=wanted_bytes, wanted=lambda: True, take=lambda _: True)
    except AgentError as error:
        with connection():
            _check_running(slug, Sandbox.get_by_id(sandbox.id))
        raise Unavailable("The app's sandbox did not answer.", retry_after_s=2) from error
    return secrets.masked_end(said.stdout, BYTES_MOST, lines)


def _check_running(slug: str, sandbox: Sandbox) -> None:
    if sandbox.status != SandboxStatus.RUNNING:
        raise Conflict(f"{slug} is {sandbox.status}; what it wrote can be read while it runs.")
