"""`python -m bin.run COMMAND...`: a command in the environment of the development stack, for
operators."""
import os
import sys

from bin.console import Advice, explained
from bin.stack.site import DEVELOPMENT, ROOT, Site


def main(command: list[str]) -> None:
    """Become `command` with the SVC_* settings of the development stack."""
    with explained():
        if not command:
            raise Advice("say which command: bin.run COMMAND...")
        if not (DEVELOPMENT / "stack.env").exists():
            raise Advice("there is no stack here yet; `make up` makes one.")
        site = Site.existing(DEVELOPMENT)
        os.chdir(ROOT)
        os.execvpe(command[0], command, site.environ)


if __name__ == "__main__":
    main(sys.argv[1:])
