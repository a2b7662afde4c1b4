"""What the driver is told to launch the machine of a sandbox."""
from nodeworker.hypervisor.driver import Forward, LaunchSpec, Shape
from services.hosts.assignments import SandboxOnNode


def launch_spec(sandbox: SandboxOnNode, *, snapshot_id: str | None = None) -> LaunchSpec:
    """The launch of `sandbox` with the ports bound to it."""
    return LaunchSpec(
        sandbox_id=sandbox.id,
        shape=Shape(sandbox.vcpus, sandbox.mem_mb),
        agent_token=sandbox.agent_token,
        agent_port=sandbox.agent_port,
        forwards=tuple(Forward(host, guest) for host, guest in sandbox.forwards.items()),
        snapshot_id=snapshot_id,
        env=sandbox.env,
    )
