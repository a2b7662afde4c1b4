"""What the tests that boot VMs need, made beside those that boot none: the guest image, the image
with the agent presets, a warm image of each, and for the word `browser` a browser."""
import sys
from collections.abc import Sequence

from bin.bootstrap import install_browser
from bin.console import Advice, end_as_by_ctrl_c, explained, say, step
from bin.stack.running import Stack, private_stack
from guest.presets import SLUGS


def main(words: Sequence[str]) -> None:
    """Make what is missing. Without the presets the tests begin all the same: their node tries to
    build them again, and says what it lacks."""
    end_as_by_ctrl_c()
    with explained():
        if "browser" in words:
            install_browser()
        stack = private_stack("test-images", {"SVC_PRESETS": ",".join(SLUGS)}, processes=())
        try:
            with step("Guest image and warm image"):
                stack.ensure_images(show=True)
            with step("Image with the agent presets"):
                _make_presets_image(stack)
        finally:
            stack.destroy()


def _make_presets_image(stack: Stack) -> None:
    try:
        # As the nodes of those tests do it by themselves.
        stack.run("python -m nodeworker.commands.bake --presets small", timeout_s=1800, show=True)
    except Advice as advice:
        say(f"  {advice}")


if __name__ == "__main__":
    main(sys.argv[1:])
