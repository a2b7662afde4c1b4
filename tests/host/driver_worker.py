"""A worker process for crash tests.

`python -m tests.host.driver_worker <driver method> <JSON list of arguments>`.
"""
import json
import os
import sys

from config.settings import load
from nodeworker.hypervisor.driver import Forward, LaunchSpec, Shape
from nodeworker.hypervisor.factory import make_driver
from tests.host.driver_lab import patient


def argument(value):
    """A launch or a shape as it was before it became JSON; anything else as it is."""
    if isinstance(value, dict) and "sandbox_id" in value:
        forwards = tuple(Forward(**forward) for forward in value["forwards"])
        return LaunchSpec(**{**value, "shape": Shape(**value["shape"]), "forwards": forwards})
    return Shape(**value) if isinstance(value, dict) else value


if __name__ == "__main__":
    driver = patient(make_driver(load(os.environ)))
    getattr(driver, sys.argv[1])(*map(argument, json.loads(sys.argv[2])))
