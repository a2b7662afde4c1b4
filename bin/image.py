"""`make image`: the guest image and the warm image of the smallest size, for whichever stack here
comes next."""
from bin.console import explained, step
from bin.stack.running import private_stack


def ensure_images() -> None:
    """Build and bake what is missing. Done in a stack of its own, which is removed again; the
    images are shared."""
    stack = private_stack("test-images", processes=())
    try:
        with step("Guest image and warm image"):
            stack.ensure_images(show=True)
    finally:
        stack.destroy()


def main() -> None:
    with explained():
        ensure_images()


if __name__ == "__main__":
    main()
