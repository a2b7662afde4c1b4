"""Puts every running sandbox of this node to sleep: `python -m nodeworker.commands.drain`, before
the host or the service goes down.

The node takes no new sandboxes and wakes none while it drains, and for five minutes afterwards, in
which its workers are to be stopped; it is open again when they start. A drain that fails or is
broken off ends that at once. Whether an operator has closed the node is another matter, and stays
as it is.
"""
import argparse
import signal
import sys
import time
from types import FrameType

from config.logging import configure
from nodeworker.wiring import NodeDeps, get_deps
from services.hosts import nodes
from services.hosts.hibernate_all import begin_hibernating

# A drain that was killed leaves the node closed for so long beyond its own time.
_SPARE_S = 60.0
# For stopping the workers of a node that is asleep.
_STOP_S = 300.0


def drain(deps: NodeDeps, timeout_s: float) -> int:
    """Hibernate all running sandboxes of the node, which is closed meanwhile and, if all sleep,
    for a while longer; returns how many still run after `timeout_s` seconds."""
    node_id, left = deps.settings.node_id, -1
    try:
        nodes.begin_draining(node_id, timeout_s + _SPARE_S)
        left = _hibernate_all(deps, time.monotonic() + timeout_s)
        if not left:
            nodes.begin_draining(node_id, _STOP_S)
        return left
    finally:
        if left:
            nodes.end_draining(node_id)


def _hibernate_all(deps: NodeDeps, deadline: float) -> int:
    while True:
        awake = begin_hibernating(deps.settings, deps.queue)
        if not awake or time.monotonic() > deadline:
            return awake
        time.sleep(0.2)


def _end(signum: int, frame: "FrameType | None") -> None:
    sys.exit(128 + signum)


def main() -> int:
    """Drain this host's node; 1 if something is still awake at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=float, default=120.0,
                        help="seconds to wait (default 120)")
    arguments = parser.parse_args()
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # nohup
            signal.signal(signum, _end)
    deps = get_deps()
    configure(deps.settings.log_level)
    left = drain(deps, arguments.timeout)
    print("all sandboxes are asleep" if not left else f"{left} sandboxes are still awake")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
