"""`bin/svc-admin`: the operator's commands (`app.operator`) with the right settings, wherever it is
called from.

1. SVC_DATABASE_URL in the environment: the settings are there. 2. A stack of `make up` in this
checkout: its settings. 3. A production host: /etc/svc/service.env.
"""
import os
import sys
from pathlib import Path

from bin.console import Advice, explained
from bin.stack.site import DEVELOPMENT, ROOT, Site
from config.env_file import read_env

SERVICE_ENV = Path("/etc/svc/service.env")


def environment() -> dict[str, str]:
    """The environment of the command. Raises Advice when nothing says which installation is
    meant."""
    if "SVC_DATABASE_URL" in os.environ:
        return dict(os.environ)
    if (DEVELOPMENT / "stack.env").exists():
        return Site.existing(DEVELOPMENT).environ
    if known := production_settings():
        return {**os.environ, **known}
    raise Advice(
        f"no installation is known here: `make up` makes one, {SERVICE_ENV} describes one in"
        " production, or set SVC_DATABASE_URL and the other SVC_* variables."
    )


def production_settings() -> dict[str, str]:
    """The settings file of a production host; nothing without one, or where `make up` has made a
    stack."""
    if (DEVELOPMENT / "stack.env").exists() or not os.access(SERVICE_ENV, os.R_OK):
        return {}
    return read_env(SERVICE_ENV)


def main(arguments: list[str]) -> None:
    """Become `app.operator` with `arguments`."""
    with explained():
        try:
            known = environment()
        except Advice:
            # What commands there are can be read before there is anything to use them on.
            if "--help" not in arguments:
                raise
            known = dict(os.environ)
        environ = {**known, "PYTHONPATH": str(ROOT)}
        os.execve(sys.executable, [sys.executable, "-m", "app.operator", *arguments], environ)


if __name__ == "__main__":
    main(sys.argv[1:])
