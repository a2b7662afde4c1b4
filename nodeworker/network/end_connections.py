"""Ends connections of this host's own processes, the edge's above all, to ports of a guest that has
gone.

Nobody else tells them: the guest cannot, and who only listens sends nothing that could be refused.
A WebSocket that is open when its sandbox is put to sleep would stay, and count as use after the
next wake. Edges on other hosts find out by keepalive.
"""
import subprocess
from collections.abc import Collection

_TIMEOUT_S = 20


def end_connections(address: str, ports: Collection[int]) -> None:
    """Abort the TCP connections from this host to `ports` of its own `address` or of loopback. A
    kernel that cannot leaves them."""
    if ports:
        subprocess.run(
            ["ss", "--kill", "--tcp", "--numeric", "--no-header", *connected_to(address, ports)],
            capture_output=True, timeout=_TIMEOUT_S, check=False)


def connected_to(address: str, ports: Collection[int]) -> list[str]:
    """The filter of `ss` for them: a state and an expression."""
    to_us = " or ".join(f"dst {each}" for each in sorted({"127.0.0.1", address}))
    to_ports = " or ".join(f"dport = :{port}" for port in sorted(ports))
    return ["state", "connected", f"( {to_us} ) and ( {to_ports} )"]
