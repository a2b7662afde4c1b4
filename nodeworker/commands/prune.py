"""Removes guest images and warm images that nothing on this host needs any more: `python -m
nodeworker.commands.prune`.

Only what no sandbox, no snapshot and no running worker refers to; the current image always stays.
"""
import argparse
import sys

from config.settings import get_settings
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.images.image_holders import register
from nodeworker.hypervisor.qemu.images.prune import prune


def main() -> int:
    """Prune and say what went; 0 unless it could not be told what is needed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument("--forget-missing", action="store_true",
                        help="node directories that are not there are gone for good, not unmounted")
    asked, settings = parser.parse_args(), get_settings()
    try:
        # It may have moved, and no worker of it has started since.
        register(settings.image_dir, settings.node_dir)
        gone = prune(settings.image_dir, dry_run=asked.dry_run,
                     forget_missing=asked.forget_missing)
    except (DriverError, OSError) as error:
        print(f"nothing was pruned: {error}", file=sys.stderr)
        return 1
    for each in gone:
        print(f"{each.kind} {each.path.name} {each.size_bytes // (1024 * 1024)} MB")
    if not gone:
        print("everything that is here is needed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
