"""Bakes the templates this node should have ready: `python -m nodeworker.bake [size ...]` (default: SVC_BAKE_SIZES)."""
import argparse
import logging
import sys
import time

from config.logging import configure
from config.settings import get_settings
from nodeworker.hypervisor.driver import DriverError, Shape
from nodeworker.hypervisor.factory import make_driver
from services.plans import SIZES

log = logging.getLogger(__name__)


def main() -> int:
    """Bake what is missing; 0 when every asked-for size is baked."""
    settings = get_settings()
    configure(settings.log_level)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", choices=[*SIZES, []], help="sizes to bake")
    driver = make_driver(settings)
    for name in parser.parse_args().sizes or settings.bake_sizes:
        shape = Shape(SIZES[name].vcpus, SIZES[name].mem_mb)
        if driver.has_template(shape):
            print(f"template {name}: ready")
            continue
        print(f"template {name}: cold-booting and warming up a {shape.vcpus} vCPU, {shape.mem_mb} MB guest", flush=True)
        begun = time.monotonic()
        try:
            driver.bake(shape)
        except DriverError as error:
            print(f"template {name} could not be baked: {error}", file=sys.stderr)
            return 1
        print(f"template {name}: baked in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
