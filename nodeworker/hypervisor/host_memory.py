"""Whether the host has memory for processes that only stand ready, and for more machines than its
memory could hold if all of them used theirs."""
import os
from pathlib import Path

from config.settings import Settings

_PROC = Path("/proc")
# While less of the host's memory (its share) is left for others, none only stand ready.
_LEFT_BESIDE_READY = 0.2
# While less is left, or processes have waited for memory for this part of the last ten seconds (%),
# there is none for more machines.
_LEFT = 0.1
_WAITED = 10.0


def promised_mb(settings: Settings) -> int:
    """What sandboxes are promised of this host's memory whatever they do (MiB): as much as is
    configured, or all but a share for the service itself."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024)
    left = max(total - max(2048, total // 10), total // 2)
    return settings.node_mem_mb or int(left * settings.mem_overcommit)


def is_short() -> bool:
    """True while others may need what processes take that only stand ready."""
    return left_share() < _LEFT_BESIDE_READY


def is_scarce() -> bool:
    """True while machines use so much of it that the host should promise no more than it has."""
    return left_share() < _LEFT or _waited() > _WAITED


def left_share() -> float:
    """The share of the host's memory that is left for others."""
    lines = (_PROC / "meminfo").read_text().splitlines()
    kilobytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    return kilobytes["MemAvailable"] / kilobytes["MemTotal"]


def _waited() -> float:
    """The kernel's pressure stall information (`some avg10`, per cent); 0 where it has none."""
    try:
        first = (_PROC / "pressure/memory").read_text().partition("\n")[0]
    except OSError:
        return 0.0
    return float(first.split()[1].partition("=")[2])
