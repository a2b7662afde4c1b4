"""`svc-shell SANDBOX`: a shell in a sandbox, in this terminal."""
import argparse
import os
import sys
from pathlib import Path

from sdk.shell.bridge import FAILED, run
from sdk.shell.connection import Connection, Refused
from sdk.shell.terminal import size_changes

EPILOG = """The API key is read from SVC_API_KEY or --key-file, never from an option, which every
user of the machine could see. `~.` at the beginning of a line leaves."""


def main() -> int:
    """The exit code of the shell; 255 if there was none."""
    options = _options()
    try:
        api_key = Path(options.key_file).read_text().strip() if options.key_file else \
            os.environ.get("SVC_API_KEY", "")
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text"
        print(f"svc-shell: {options.key_file} cannot be read: {said}", file=sys.stderr)
        return FAILED
    if not api_key or not options.url:
        print("svc-shell: needs SVC_API_KEY (or --key-file) and SVC_SHELL_URL (or --url)",
              file=sys.stderr)
        return FAILED

    def connect() -> Connection:
        return Connection(options.url, options.sandbox, api_key, options.ca_file)

    try:
        with size_changes() as size_changed:
            return run(connect, size_changed)
    except Refused as refusal:
        print(f"svc-shell: {refusal}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FAILED


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="svc-shell", epilog=EPILOG,
                                     description="Open a shell in a sandbox.")
    parser.add_argument("sandbox", metavar="SANDBOX", help="id of the sandbox; it is woken")
    parser.add_argument("--url", default=os.environ.get("SVC_SHELL_URL", ""),
                        help="the shell host, wss://... (SVC_SHELL_URL)")
    parser.add_argument("--ca-file", default=os.environ.get("SVC_CA_FILE", ""),
                        help="certificates to trust (SVC_CA_FILE); the system's by default")
    parser.add_argument("--key-file", default="", help="a file that holds the API key")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
