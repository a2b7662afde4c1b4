"""The one setting of the whole host that guests need, IPv4 forwarding: switched on, remembered, put
back at teardown.

Nodes of one host come and go at the same time. Whether anybody still needs it and switching it off
is one step, and so is looking and switching on: both hold a lock of the host. Without that, a node
that had just loaded its policy found it on, and lost it a moment later; packets to its guests then
vanished without a sign.
"""
import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

_SWITCH = Path("/proc/sys/net/ipv4/ip_forward")
_LOCK = Path("/run/svc-forwarding.lock")


def is_on() -> bool:
    return _SWITCH.read_text().strip() == "1"


def enable(memory: Path) -> None:
    """Switch IPv4 forwarding on; the first time, note in `memory` that it was off. The caller's
    packet policy has to be loaded, which is how others see that it is needed."""
    with _locked():
        if is_on():
            return
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.touch()
        _SWITCH.write_text("1")


def restore(memory: Path, others_need_it: Callable[[], bool]) -> None:
    """Switch forwarding off again if `enable` switched it on and nobody else on this host needs
    it."""
    with _locked():
        if memory.exists() and not others_need_it():
            _SWITCH.write_text("0")
        memory.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
