"""Starts the agent: `python3 -m agent` in the guest, with `--root DIR` harmlessly on any machine
for trying it out."""
import gc
import os
import resource
import socket
import sys
from typing import NamedTuple

from .identity import recall
from .kernel import Kernel, UntouchedKernel
from .loop import Loop
from .protocol import AGENT_PORT
from .server import BACKLOG, Agent

TOKEN_FILE = "/opt/svc/initial-token"


class _Options(NamedTuple):
    host: str = "0.0.0.0"
    port: int = AGENT_PORT
    root: str = ""


def main() -> None:
    """Listen and serve until killed; prints one line when ready."""
    options = _options()
    _raise_descriptor_limit()
    with open(options.root + TOKEN_FILE, "rb") as file:
        identity, left = recall(options.root, file.read().strip())
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((options.host, options.port))
    listener.listen(BACKLOG)
    loop = Loop()
    agent = Agent(loop, listener, identity, UntouchedKernel() if options.root else Kernel(),
                  options.root)
    if left is not None:
        agent.finish_adoption(left)
    os.chdir("/")
    gc.collect()
    gc.freeze()
    print(f"svc-agent listens on port {listener.getsockname()[1]}", flush=True)
    loop.run()


def _options() -> _Options:
    if len(sys.argv) == 1:
        return _Options()
    import argparse  # never in a guest, whose memory every sandbox inherits

    parser = argparse.ArgumentParser(prog="agent",
                                     description="Guest agent of the sandbox service.")
    parser.add_argument("--host", default=_Options().host)
    parser.add_argument("--port", type=int, default=_Options().port)
    parser.add_argument("--root", default="", help="take this directory for / and leave the "
                        "machine's clock, randomness and name alone")
    given = parser.parse_args()
    return _Options(given.host, given.port, given.root)


def _raise_descriptor_limit() -> None:
    """Each running command takes four descriptors; the usual 1024 would end at some 250
    commands."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))


if __name__ == "__main__":
    main()
