"""The one setting of the whole host that guests need, IPv4 forwarding: switched on, remembered, put
back at teardown."""
from pathlib import Path

_SWITCH = Path("/proc/sys/net/ipv4/ip_forward")


def enable(memory: Path) -> None:
    """Switch IPv4 forwarding on; the first time, note in `memory` that it was off."""
    if _SWITCH.read_text().strip() == "1":
        return
    memory.parent.mkdir(parents=True, exist_ok=True)
    memory.touch()
    _SWITCH.write_text("1")


def restore(memory: Path, *, others_need_it: bool) -> None:
    """Switch forwarding off again if `enable` switched it on and nobody else on this host needs
    it."""
    if memory.exists() and not others_need_it:
        _SWITCH.write_text("0")
    memory.unlink(missing_ok=True)
