"""`make test`: pytest over all rooms or the named ones, with the guest image made first where VMs
are used.

The fixtures of tests/conftest.py start and end the stacks; this only prepares what is shared and
costly.
"""
import os
import sys

from bin.console import explained
from bin.image import ensure_images
from bin.stack.site import ROOT

WITH_VMS = {"vm", "chaos"}


def main(rooms: list[str]) -> None:
    """Prepare, then become pytest, so that its closing line is the last one and its exit code
    ours."""
    with explained():
        if not rooms or WITH_VMS & set(rooms):
            ensure_images()
        os.chdir(ROOT)
        paths = [f"tests/{room}" for room in rooms] or ["tests"]
        python = str(ROOT / ".venv/bin/python")
        os.execv(python,
                 [python, "-m", "pytest", *paths, *os.environ.get("PYTEST_ARGUMENTS", "").split()])


if __name__ == "__main__":
    main(sys.argv[1:])
