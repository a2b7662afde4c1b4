"""From a sandbox row to what the driver needs, and the start command once the guest answers."""
from models.base import connection
from models.nodes import PortBinding
from models.sandboxes import Sandbox
from nodeworker.guest.errors import AgentError
from nodeworker.host import Host
from nodeworker.hypervisor.driver import DriverError, Forward, LaunchSpec, Shape


class NotReady(DriverError):
    """The start command failed or its port did not open in time; the text may be shown to the owner."""


def launch_spec(sandbox: Sandbox, *, snapshot_id: str | None = None) -> LaunchSpec:
    """The launch of `sandbox` with the ports bound to it."""
    with connection():
        bindings = list(
            PortBinding.select().where(
                (PortBinding.sandbox_id == sandbox.id) & (PortBinding.host_port != sandbox.agent_port)
            )
        )
    return LaunchSpec(
        sandbox_id=sandbox.id,
        shape=Shape(sandbox.vcpus, sandbox.mem_mb),
        agent_token=sandbox.agent_token,
        agent_port=sandbox.agent_port,
        forwards=tuple(Forward(row.host_port, row.guest_port) for row in bindings),
        snapshot_id=snapshot_id,
        env=sandbox.env,
    )


def start_service(host: Host, sandbox: Sandbox) -> None:
    """Run the start command of the wake spec and wait until its readiness port takes connections; raises NotReady.

    Called when the guest's processes are not those of a running service: after a boot, a fork, and every cold boot.
    """
    wait_s = host.settings.readiness_wait_s
    agent = host.agent(sandbox)
    try:
        if sandbox.start_command:
            agent.exec(shell=sandbox.start_command, cwd=sandbox.cwd, env=sandbox.env, detached=True)
        if sandbox.readiness_port and not agent.wait_port(sandbox.readiness_port, timeout_s=wait_s):
            raise NotReady(f"Nothing listened on port {sandbox.readiness_port} within {wait_s:g} s.")
    except AgentError as error:
        raise NotReady(f"The start command could not be run: {error}") from error
