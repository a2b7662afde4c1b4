"""Bakes warm images while you wait: `python -m nodeworker.commands.bake [--presets] [size ...]`
(default: SVC_BAKE_SIZES). Workers bake in the background instead, see `nodeworker.warm_images`."""
import argparse
import logging
import os
import sys
import time

from config.logging import configure
from config.settings import Settings, get_settings
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import Driver, DriverError, Shape
from nodeworker.hypervisor.factory import make_driver
from nodeworker.warm_images import lock_file
from services.metering.plans import SIZES

log = logging.getLogger(__name__)
_PATIENCE_S = 900.0


def main() -> int:
    """Bake what is missing; 0 when every asked-for size is baked."""
    settings = get_settings()
    configure(settings.log_level)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", choices=[*SIZES, []], help="sizes to bake")
    parser.add_argument("--presets", action="store_true",
                        help="of the image with the agent presets (SVC_PRESETS), which is built if"
                             " it is missing or not up to date")
    driver, asked = make_driver(settings), parser.parse_args()
    for name in asked.sizes or settings.bake_sizes:
        shape = Shape(SIZES[name].vcpus, SIZES[name].mem_mb)
        # Whether the image with the presets is up to date only its builder can tell.
        if not asked.presets and driver.has_warm_image(shape):
            print(f"warm image of {name}: ready")
            continue
        name += " with the presets" if asked.presets else ""
        missing = "making what is missing for" if asked.presets else "cold-booting and warming up"
        print(f"warm image of {name}: {missing} a guest of {shape.vcpus} vCPU, {shape.mem_mb} MB",
              flush=True)
        begun = time.monotonic()
        try:
            _bake(settings, driver, shape, presets=asked.presets)
        except DriverError as error:
            print(f"the warm image of {name} could not be baked: {error}", file=sys.stderr)
            return 1
        print(f"warm image of {name}: ready after {time.monotonic() - begun:.0f} s")
    return 0


def _bake(settings: Settings, driver: Driver, shape: Shape, *, presets: bool) -> None:
    """Bake, once no worker of this node does."""
    lock = locks.wait_lock(lock_file(settings), limit_s=_PATIENCE_S)
    try:
        driver.bake(shape, lambda phase: print(f"  {phase}", flush=True), presets=presets)
    finally:
        os.close(lock)


if __name__ == "__main__":
    sys.exit(main())
