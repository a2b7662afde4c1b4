"""`make restart`: our processes start again with the code as it is; databases and virtual machines
run on."""
from bin.console import Advice, explained, step
from bin.stack import unix_accounts
from bin.stack.running import Stack
from bin.stack.site import DEVELOPMENT, Site

EDGE = "edge"


def main() -> None:
    with explained():
        if not (DEVELOPMENT / "stack.env").exists():
            raise Advice("there is no stack here yet; `make up` makes one.")
        stack = Stack(Site.development())
        if not stack.supervisor.running():
            raise Advice("the stack is stopped; `make up` starts it.")
        with step("Restarting " + ", ".join(stack.processes)):
            unix_accounts.prepare(stack.site)
            stack.supervisor.launch()
            stack.prepare()
            stack.restart(*(name for name in stack.processes if name != EDGE))
            # Its clients keep their connections.
            if stack.supervisor.pid(EDGE):
                stack.run("python -m config.nginx.reload")
            stack.start(EDGE)
            stack.wait_healthy()
            stack.seed()


if __name__ == "__main__":
    main()
