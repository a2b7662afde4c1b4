"""Puts every running sandbox of this node to sleep: `python -m nodeworker.commands.drain`, before
the host or the service goes down.

The node takes no new sandboxes while it drains (`--keep-closed` leaves it closed afterwards).
Sleeping sandboxes wake as usual once the service is back.
"""
import argparse
import sys
import time

from config.logging import configure
from nodeworker.wiring import NodeDeps, get_deps
from services.hosts import nodes
from services.hosts.hibernate_all import begin_hibernating


def drain(deps: NodeDeps, timeout_s: float) -> int:
    """Hibernate all running sandboxes of the node; returns how many still run after `timeout_s`
    seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        awake = begin_hibernating(deps.settings, deps.queue)
        if not awake or time.monotonic() > deadline:
            return awake
        time.sleep(0.2)


def main() -> int:
    """Drain this host's node; 1 if something is still awake at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=float, default=120.0,
                        help="seconds to wait (default 120)")
    parser.add_argument("--keep-closed", action="store_true",
                        help="take no new sandboxes afterwards")
    arguments = parser.parse_args()
    deps = get_deps()
    configure(deps.settings.log_level)
    nodes.set_accepting(deps.settings.node_id, accepting=False)
    left = drain(deps, arguments.timeout)
    if not arguments.keep_closed:
        nodes.set_accepting(deps.settings.node_id, accepting=True)
    print("all sandboxes are asleep" if not left else f"{left} sandboxes are still awake")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
