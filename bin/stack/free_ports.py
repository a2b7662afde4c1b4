"""TCP ports of this host that nobody listens on."""
import secrets
import socket
from collections.abc import Mapping

# Where the kernel picks no port for anybody, and neither our shares of a host nor the ports that
# we prefer are: until a server listens, nobody else gets what was free.
_ANY = range(10_000, 15_000)


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
    """`preferred` if it is free, else any other."""
    if preferred and is_free(preferred):
        return preferred
    while not is_free(port := secrets.choice(_ANY)):
        pass
    return port


def choose_ports(preferred: Mapping[str, int]) -> dict[str, int]:
    """A free port for each name, its preferred one where possible; no two are the same."""
    chosen: dict[str, int] = {}
    for name, number in preferred.items():
        port = free_port(number)
        while port in chosen.values():
            port = free_port()
        chosen[name] = port
    return chosen


def free_ports(count: int) -> list[int]:
    """So many free ports; no two are the same."""
    return list(choose_ports(dict.fromkeys(map(str, range(count)), 0)).values())
