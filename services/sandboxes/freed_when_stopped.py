"""What a sandbox that is stopped, and so deleted, gives back or forgets; the caller's transaction
stops it."""
from models.sandboxes import Sandbox
from services.hosts.resting_ports import release_ports
from services.sandboxes import agent_servers


def release(sandbox_id: str) -> None:
    """Give back its ports, and forget its secrets: variables, agent's token, callback token. Its
    snapshots have the variables of their own."""
    release_ports(sandbox_id)
    agent_servers.forget_bootstrap(sandbox_id)
    Sandbox.update(env={}, agent_token="").where(Sandbox.id == sandbox_id).execute()
