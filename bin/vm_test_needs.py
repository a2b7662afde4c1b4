"""What the tests that boot VMs need, made beside those that boot none: the guest image, the image
with the agent presets, a warm image of each, and for the word `browser` a browser."""
import sys
from collections.abc import Sequence

from bin.bootstrap import install_browser
from bin.console import end_as_by_ctrl_c, explained
from bin.image import ensure_images
from guest.presets import SLUGS


def main(words: Sequence[str]) -> None:
    """Make what is missing."""
    end_as_by_ctrl_c()
    with explained():
        if "browser" in words:
            install_browser()
        ensure_images(SLUGS)


if __name__ == "__main__":
    main(sys.argv[1:])
