"""TCP ports of this host that nobody listens on."""
import socket
from collections.abc import Mapping


def is_free(port: int) -> bool:
    """True if a server could listen on 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port(preferred: int = 0) -> int:
    """`preferred` if it is free, else one that the kernel picks."""
    if preferred and is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def choose_ports(preferred: Mapping[str, int]) -> dict[str, int]:
    """A free port for each name, its preferred one where possible; no two are the same."""
    chosen: dict[str, int] = {}
    for name, number in preferred.items():
        port = free_port(number)
        while port in chosen.values():  # the kernel may pick one twice
            port = free_port()
        chosen[name] = port
    return chosen
