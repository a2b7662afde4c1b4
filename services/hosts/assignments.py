"""What a node is told of a sandbox that is assigned to it, so that it can run it.

It is a copy of the row as it was when it was read. A node decides nothing from it alone: an
operation is claimed first, and its result counts only under that claim.
"""
from collections.abc import Mapping
from dataclasses import dataclass, field

from config.settings import Settings
from models.database import connection
from models.sandboxes import Sandbox
from models.states import OWN_KINDS, PresetState, SandboxStatus
from services.hosts.guest_environment import environment
from services.hosts.sandbox_ports import tenant_ports


@dataclass(frozen=True)
class SandboxOnNode:
    """A sandbox as its node needs it.

    `agent_port` is the host port that leads to the guest's agent, `agent_token` the secret that the
    agent asks for. `forwards` maps the other bound host ports to guest ports. `readiness_port` and
    `start_command` are its service, if it has one. `cold_boots` counts wakes from the disk. `env`
    are the variables of its owner, `process_env` those of what the node starts in it. One that
    `boots_from_disk` takes nothing of its snapshot's memory. An agent `preset` without a state is
    still to be made ready. One that `is_raw` never had an agent server.
    """

    id: str
    owner_id: str
    status: SandboxStatus
    vcpus: int
    mem_mb: int
    agent_port: int
    cwd: str
    start_command: str | None
    readiness_port: int | None
    preferred_model: str
    cold_boots: int
    preset: str | None
    preset_state: PresetState | None
    preset_error: str | None
    agent_token: str = field(repr=False)
    env: dict[str, str] = field(repr=False)
    process_env: dict[str, str] = field(repr=False)
    forwards: Mapping[int, int] = field(default_factory=dict)
    boots_from_disk: bool = False
    is_raw: bool = False


def get_assigned(settings: Settings, sandbox_id: str) -> SandboxOnNode:
    """The sandbox as its row and port bindings are now; the row must exist. `settings` say
    where its LLM proxy is."""
    with connection():
        row = Sandbox.get_by_id(sandbox_id)
        forwards = tenant_ports(row)
    return SandboxOnNode(
        id=row.id,
        owner_id=row.owner_id,
        status=SandboxStatus(row.status),
        vcpus=row.vcpus,
        mem_mb=row.mem_mb,
        agent_port=row.agent_port,
        cwd=row.cwd,
        start_command=row.start_command,
        readiness_port=row.readiness_port,
        preferred_model=row.preferred_model,
        cold_boots=row.cold_boots,
        preset=row.preset,
        preset_state=None if row.preset_state is None else PresetState(row.preset_state),
        preset_error=row.preset_error,
        agent_token=row.agent_token,
        env=row.env,
        process_env=environment(settings, row.id, row.env),
        forwards=forwards,
        boots_from_disk=row.kind in OWN_KINDS,
        is_raw=row.skip_app_processes,
    )
