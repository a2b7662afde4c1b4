"""`make status`: each process of the development stack with its state, and what the stack holds."""
import sys

from bin.console import explained
from bin.site import ROOT, Site
from bin.stack import SERVERS, Stack


def main() -> None:
    """Print the state; the exit code is 1 unless everything runs."""
    with explained():
        if not (ROOT / "var" / "stack.env").exists():
            print("There is no stack here yet; `make up` makes one.")
            sys.exit(1)
        stack = Stack(Site.existing(ROOT / "var"))
        if not stack.supervisor.running():
            print("The stack is stopped; `make up` starts it.")
            sys.exit(1)
        states = {name: stack.supervisor.info(name) for name in (*SERVERS, *stack.processes)}
        for name, info in states.items():
            print(f"{name:10} {info['statename']:9} {info['description']}")
        print(f"\nAPI {stack.api_url}   identity {stack.auth_url}   users and keys: var/dev.env")
        sys.exit(0 if all(info["statename"] == "RUNNING" for info in states.values()) else 1)


if __name__ == "__main__":
    main()
