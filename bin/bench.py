"""`make bench`: the figures of `python -m bench`, on a private stack with nothing else on it, or on
the running one.

`RUNNING=1 make bench` measures the stack of `make up` instead; its guests then share the machine
with the measurement.
"""
import os
import subprocess
import sys

from bin.bootstrap import BENCH, install_packages, missing_packages
from bin.console import Advice, explained, let_others_read, step
from bin.stack.running import Stack, private_stack, remove_abandoned
from bin.stack.site import DEVELOPMENT, ROOT, Site
from guest.presets import SLUGS

# What a measurement needs of the stack, by its option; a spare for each create of a burst.
SETTINGS = {"--presets": {"SVC_PRESETS": ",".join(SLUGS)}, "--bursts": {"SVC_WARM_SPARES": "10"}}


def measure(stack: Stack, arguments: list[str]) -> int:
    """Run the bench in the environment of a healthy stack; its table goes to our standard
    output."""
    command = [str(ROOT / ".venv/bin/python"), "-m", "bench", *arguments]
    return subprocess.run(command, env={**stack.env, **stack.people}, cwd=ROOT,
                          check=False).returncode


def main(arguments: list[str]) -> None:
    let_others_read()
    with explained():
        if os.environ.get("RUNNING"):
            stack = Stack(Site.existing(DEVELOPMENT))
            if not stack.supervisor.running():
                raise Advice("no stack is running; `make up` starts one.")
            sys.exit(measure(stack, arguments))
        install_packages(missing_packages(BENCH))
        remove_abandoned()
        wanted = [SETTINGS[option] for option in SETTINGS if option in arguments]
        stack = private_stack("bench-stack", wanted[0] if wanted else {}, durable=True)
        try:
            with step("A private stack for the measurement"):
                stack.ensure_images(show=True)
                stack.up()
            code = measure(stack, arguments)
        finally:
            stack.destroy()
        sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
