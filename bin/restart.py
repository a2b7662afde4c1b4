"""`make restart`: our processes start again with the code as it is; databases and virtual machines
run on. `make stop` only ends them, `make start P=name` starts one of them, as a restore needs."""
import sys
from collections.abc import Sequence

from bin.console import Advice, explained, let_others_read, step
from bin.stack.running import Stack
from bin.stack.site import DEVELOPMENT, Site

EDGE = "edge"
_AT_WORK = ("RUNNING", "STARTING", "BACKOFF")


def restart(stack: Stack) -> None:
    """Start every process again, those that were stopped too; returns when all are healthy."""
    with step("Restarting " + ", ".join(stack.processes)):
        stack.start_servers()
        stack.prepare()
        stack.restart(*(name for name in stack.processes if name != EDGE))
        # Its clients keep their connections.
        if stack.supervisor.pid(EDGE):
            stack.run("python -m config.nginx.reload")
        stack.start(EDGE)
        stack.wait_healthy()
        stack.seed()


def stop(stack: Stack) -> None:
    """Stop every process; the servers and the virtual machines run on."""
    with step("Stopping " + ", ".join(stack.processes)):
        stack.stop(*reversed(stack.processes))


def start(stack: Stack, names: Sequence[str]) -> None:
    """Start these processes with today's settings; what runs goes on. Raises Advice where there is
    none of that name."""
    if not names:
        raise Advice("say which: `make start P=node-ctl`; `make restart` starts all.")
    if unknown := [name for name in names if name not in stack.processes]:
        raise Advice(f"there is no process {unknown[0]}; `make status` shows those there are.")
    with step("Starting " + ", ".join(names)):
        ran = [name for name in stack.processes if stack.supervisor.state(name) in _AT_WORK]
        stack.start_servers()
        # What new code starts in another way is stopped by now.
        stack.start(*names, *ran)


def main(arguments: list[str]) -> None:
    """Nothing (all of it again), `stop`, or `start` and names."""
    let_others_read()
    with explained():
        if not (DEVELOPMENT / "stack.env").exists():
            raise Advice("there is no stack here yet; `make up` makes one.")
        stack = Stack(Site.development())
        if not stack.supervisor.running():
            raise Advice("the stack is stopped; `make up` starts it.")
        action, *names = arguments or ["restart"]
        if action == "start":
            start(stack, names)
        else:
            {"restart": restart, "stop": stop}[action](stack)


if __name__ == "__main__":
    main(sys.argv[1:])
