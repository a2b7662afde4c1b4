"""What the driver is told of the machine of a sandbox, to start it."""
from nodeworker.bun_env import bun_env
from nodeworker.hypervisor.driver import Forward, MachineSpec, Shape
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.operations import attempts
from services.operations.claims import Claim


def machine_spec(deps: NodeDeps, sandbox: SandboxOnNode, claimed: Claim | None = None,
                 snapshot_id: str | None = None, *, shares_snapshot: bool = False) -> MachineSpec:
    """The machine of `sandbox` with the ports bound to it, for the operation `claimed`. One whose
    preset is still to be made ready stands on the image with the presets. Of the snapshot see
    `MachineSpec`."""
    runs_bun = sandbox.preset is not None or sandbox.boots_from_disk
    return MachineSpec(
        sandbox_id=sandbox.id,
        shape=Shape(sandbox.vcpus, sandbox.mem_mb),
        agent_token=sandbox.agent_token,
        agent_port=sandbox.agent_port,
        forwards=tuple(Forward(host, guest) for host, guest in sandbox.forwards.items()),
        snapshot_id=snapshot_id,
        from_disk=sandbox.boots_from_disk,
        env=(bun_env(deps) if runs_bun else {}) | sandbox.env,
        presets=sandbox.preset is not None and sandbox.preset_state is None,
        shares_snapshot=shares_snapshot,
        is_last_try=claimed is not None and attempts.is_last(
            claimed.attempts, attempts.limit_of(deps.settings, claimed.kind)),
    )
