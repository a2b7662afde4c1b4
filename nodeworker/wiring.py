"""What a node process works with, and its composition root."""
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from config.settings import Settings, get_settings
from guest.client.agent_client import AgentClient
from models.database import connect
from nodeworker.hypervisor.driver import Driver
from nodeworker.hypervisor.factory import make_driver
from services.deploys.builder_size import builder_size
from services.hosts.assignments import SandboxOnNode
from services.metering.prices import check_rates
from services.protocols import Deps, Queue
from tasks.publisher import CeleryQueue
from tasks.wiring import no_guest


@dataclass(frozen=True)
class NodeDeps:
    """The driver of this machine, the queue, and the way to a guest's agent."""

    settings: Settings
    driver: Driver
    queue: Queue
    agent: Callable[[SandboxOnNode], AgentClient]

    @property
    def rules(self) -> Deps:
        """What the rules take."""
        return Deps(self.settings, self.queue, no_guest)


@lru_cache(maxsize=1)
def get_deps() -> NodeDeps:
    """The dependencies of this process; points the process at its database, opens nothing else."""
    settings = get_settings()
    check_rates(settings)
    builder_size(settings)
    connect(settings.database_url, pool_size=settings.db_pool_size,
            application=f"node {settings.node_id}")

    def agent(sandbox: SandboxOnNode) -> AgentClient:
        return AgentClient(settings.node_address, sandbox.agent_port, sandbox.agent_token)

    return NodeDeps(settings, make_driver(settings), CeleryQueue(settings), agent)
