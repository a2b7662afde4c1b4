"""Says which settings are out of their range or do not go together; what one alone may look like is
in `parse_values.py` and in the table of `settings.py`."""
from typing import TYPE_CHECKING

from config.static_file_ages import PAGE_AGE_S

if TYPE_CHECKING:
    from config.settings import Settings

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def check(settings: "Settings") -> None:
    """Raises ValueError with a sentence about the first that is wrong."""
    if settings.log_level not in _LOG_LEVELS:
        raise ValueError(f"SVC_LOG_LEVEL must be one of {', '.join(_LOG_LEVELS)}.")
    _check_ports(settings)
    if settings.static_collect_s <= PAGE_AGE_S:
        raise ValueError(f"SVC_STATIC_COLLECT_S must be above {PAGE_AGE_S}, the time that browsers"
                         " may keep a page. See config/example.env.")
    if not 0 < settings.owner_share <= 1:
        raise ValueError("SVC_OWNER_SHARE must be above 0, at most 1. See config/example.env.")


def _check_ports(settings: "Settings") -> None:
    ranges = {"SVC_HOST_PORTS": settings.host_ports, "SVC_AGENT_PORTS": settings.agent_ports}
    for name, ports in ranges.items():
        if len(ports) != 2 or ports[0] > ports[1]:
            raise ValueError(f"{name} must be two numbers, low,high. See config/example.env.")
    (low, high), (agent_low, agent_high) = settings.host_ports, settings.agent_ports
    if low <= agent_high and agent_low <= high:
        raise ValueError("SVC_AGENT_PORTS must be apart from SVC_HOST_PORTS.")
