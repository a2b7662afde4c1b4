"""Whether the host has memory for processes that only stand ready."""
from pathlib import Path

# While less of the host's memory (its share) is left for others, none is.
_MEMORY_LEFT = 0.2


def is_short() -> bool:
    """True while others may need what such processes take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kilobytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    return kilobytes["MemAvailable"] < _MEMORY_LEFT * kilobytes["MemTotal"]
