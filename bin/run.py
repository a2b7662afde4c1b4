"""`python -m bin.run COMMAND...`: a command with the settings of this host's installation, chosen
as `bin/svc-admin` does, for operators."""
import os
import sys

from bin.admin import environment
from bin.console import Advice, explained
from bin.stack.site import ROOT


def main(command: list[str]) -> None:
    """Become `command`, in the checkout and with its programs first."""
    with explained():
        if not command:
            raise Advice("say which command: bin.run COMMAND...")
        environ = environment()
        environ["PATH"] = f"{ROOT}/.venv/bin:{environ.get('PATH', os.defpath)}"
        os.chdir(ROOT)
        try:
            os.execvpe(command[0], command, environ)
        except FileNotFoundError as error:
            raise Advice(f"there is no command {command[0]}.") from error


if __name__ == "__main__":
    main(sys.argv[1:])
