"""`svc-shell SANDBOX`: a shell in a sandbox, in this terminal."""
import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from sdk.shell.bridge import FAILED, run
from sdk.shell.connection import Connection, Refused
from sdk.shell.terminal import complain, open_closed_descriptors, size_changes

EPILOG = """The API key is read from SVC_API_KEY or --key-file, never from an option, which every
user of the machine could see. `~.` at the beginning of a line leaves."""


class _Parser(argparse.ArgumentParser):
    """Options whose mistakes end as every other: argparse's own exit code could be the shell's."""

    def error(self, message: str) -> NoReturn:
        """Raises Refused."""
        raise Refused(f"{message}; --help says more")


def main() -> int:
    """The exit code of the shell; 255 if there was none, or its output cannot be written."""
    open_closed_descriptors()
    try:
        options = _options()
        api_key = _api_key(options.key_file)
        if not api_key or not options.url:
            raise Refused("needs SVC_API_KEY (or --key-file) and SVC_SHELL_URL (or --url)")

        def connect() -> Connection:
            return Connection(options.url, options.sandbox, api_key, options.ca_file)

        with size_changes() as size_changed:
            return run(connect, size_changed)
    except Refused as refusal:
        complain(str(refusal))
    except (KeyboardInterrupt, BrokenPipeError):
        pass  # the user has left, or whoever reads the output has, as `head` does
    except OSError as error:
        complain(f"cannot go on: {error.strerror}")
    return FAILED


def _api_key(key_file: str) -> str:
    """The key, or nothing; raises Refused."""
    try:
        return Path(key_file).read_text().strip() if key_file else \
            os.environ.get("SVC_API_KEY", "")
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Refused(f"{key_file} cannot be read: {said}") from error


def _options() -> argparse.Namespace:
    parser = _Parser(prog="svc-shell", epilog=EPILOG, description="Open a shell in a sandbox.")
    parser.add_argument("sandbox", metavar="SANDBOX", help="id of the sandbox; it is woken")
    parser.add_argument("--url", default=os.environ.get("SVC_SHELL_URL", ""),
                        help="the shell host, wss://... (SVC_SHELL_URL)")
    parser.add_argument("--ca-file", default=os.environ.get("SVC_CA_FILE", ""),
                        help="certificates to trust (SVC_CA_FILE); the system's by default")
    parser.add_argument("--key-file", default="", help="a file that holds the API key")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
