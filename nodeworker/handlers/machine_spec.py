"""What the driver is told of the machine of a sandbox, to start it."""
from nodeworker.hypervisor.driver import Forward, MachineSpec, Shape
from nodeworker.wiring import NodeDeps
from services.hosts.assignments import SandboxOnNode
from services.operations import attempts
from services.operations.claims import Claim

# Bun's second optimising compiler costs an emulated guest more than it saves: an agent starts and a
# build ends in half to two thirds of the time without it.
_EMULATED = {"BUN_JSC_useDFGJIT": "0"}


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


def bun_env(deps: NodeDeps) -> dict[str, str]:
    """Variables with which Bun runs best on this host."""
    return _EMULATED if deps.driver.host_tuple().accelerator == "tcg" else {}
