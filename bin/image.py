"""`make image`: the guest image and the warm image of the smallest size, for whichever stack here
comes next."""
from collections.abc import Iterable

from bin.console import Advice, explained, say, step
from bin.stack.running import Stack, private_stack


def ensure_images(presets: Iterable[str] = ()) -> None:
    """Build and bake what is missing, the image with these agent presets too. Done in a stack of
    its own, which is removed again; the images are shared."""
    wanted = ",".join(presets)
    stack = private_stack("test-images", {"SVC_PRESETS": wanted}, processes=())
    try:
        with step("Guest image and warm image"):
            stack.ensure_images(show=True)
        if wanted:
            with step("Image with the agent presets"):
                _try_presets(stack)
    finally:
        stack.destroy()


def _try_presets(stack: Stack) -> None:
    """As nodes do by themselves. One that misses them tries again, and says what it lacks."""
    try:
        stack.run("python -m nodeworker.commands.bake --presets small", timeout_s=1800, show=True)
    except Advice as advice:
        say(f"  {advice}")


def main() -> None:
    with explained():
        ensure_images()


if __name__ == "__main__":
    main()
