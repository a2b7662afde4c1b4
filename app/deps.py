"""What the use cases need of the process that calls them: for a request, or an operator's
command."""
from config.settings import Settings
from guest.client.agent_client import AgentClient
from services.protocols import Deps
from tasks.publisher import CeleryQueue


def make_deps(settings: Settings) -> Deps:
    """Settings, the queue and the connection to guests; opens none yet."""
    return Deps(settings=settings, queue=CeleryQueue(settings), connect_guest=AgentClient)
