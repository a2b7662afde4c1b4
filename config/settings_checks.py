"""Says which settings are out of their range or do not go together; what one alone may look like is
in `parse_values.py` and in the table of `settings.py`.

Names of sizes and plans are compared at the start of the processes that are told them, by the rules
that know them (`services/metering`).
"""
from typing import TYPE_CHECKING

from config.static_file_ages import PAGE_AGE_S

if TYPE_CHECKING:
    from config.settings import Settings

_SEE = "See config/example.env."
_CHOICES = {
    "log_level": ("DEBUG", "INFO", "WARNING", "ERROR"),
    "driver": ("qemu", "simulated"),
    "accelerator": ("auto", "kvm", "tcg"),
    "machine": ("auto", "microvm", "q35"),
}
_PORTS = ("edge_port", "gateway_port", "guest_gateway_port", "shell_port", "flower_port")
_PORT_MAX = 65535
# Without any of these a process does nothing, or the same thing without a pause.
_ABOVE_ZERO = (
    "api_workers", "api_threads", "db_pool_size", "buffer_mb", "shell_limit", "head_s",
    "body_silence_s", "identity_poll_s", "operation_lease_s", "operation_attempts", "idle_sweep_s",
    "operation_sweep_s", "relay_poll_s", "store_sweep_s", "disk_sample_s", "usage_sample_s",
    "deploy_sweep_s", "webhook_sweep_s", "node_heartbeat_s", "node_dead_after_s", "reconcile_s",
    "ctl_concurrency", "ops_concurrency", "archive_concurrency", "deploy_concurrency",
    "npm_cache_mb",
)


def check(settings: "Settings") -> None:
    """Raises ValueError with a sentence about the first that is wrong."""
    for name, choices in _CHOICES.items():
        if getattr(settings, name) not in choices:
            raise ValueError(f"{_variable(name)} must be one of {', '.join(choices)}. {_SEE}")
    for name, value in vars(settings).items():
        if isinstance(value, (int, float)) and value < 0:
            raise ValueError(f"{_variable(name)} must not be negative. {_SEE}")
    for name in _ABOVE_ZERO:
        if not getattr(settings, name):
            raise ValueError(f"{_variable(name)} must be above 0. {_SEE}")
    _check_ports(settings)
    if settings.static_collect_s <= PAGE_AGE_S:
        raise ValueError(f"SVC_STATIC_COLLECT_S must be above {PAGE_AGE_S}, the time that browsers"
                         f" may keep a page. {_SEE}")
    if not 0 < settings.owner_share <= 1:
        raise ValueError(f"SVC_OWNER_SHARE must be above 0, at most 1. {_SEE}")


def _variable(name: str) -> str:
    return f"SVC_{name.upper()}"


def _check_ports(settings: "Settings") -> None:
    for name in _PORTS:
        if not 1 <= getattr(settings, name) <= _PORT_MAX:
            raise ValueError(f"{_variable(name)} must be a port, 1 to {_PORT_MAX}. {_SEE}")
    for name in ("host_ports", "agent_ports"):
        ports = getattr(settings, name)
        if len(ports) != 2 or not 1 <= ports[0] <= ports[1] <= _PORT_MAX:
            raise ValueError(f"{_variable(name)} must be two ports, low,high. {_SEE}")
    (low, high), (agent_low, agent_high) = settings.host_ports, settings.agent_ports
    if low <= agent_high and agent_low <= high:
        raise ValueError("SVC_AGENT_PORTS must be apart from SVC_HOST_PORTS.")
