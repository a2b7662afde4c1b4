"""`make image`: the guest image and the warm image of the smallest size, for whichever stack here
comes next, or where /etc/svc/service.env says that this host has its images."""
from collections.abc import Iterable, Mapping

from bin.admin import production_settings
from bin.console import Advice, end_as_by_ctrl_c, explained, let_others_read, say, step
from bin.stack.running import Stack, private_stack
from bin.stack.site import HOST_SETTINGS


def ensure_images(presets: Iterable[str] = (), hosts: Mapping[str, str] | None = None) -> None:
    """Build and bake what is missing, the image with these agent presets too. Done in a stack of
    its own, which is removed again; the images are shared. `hosts` are settings of this host that
    win over those of `.env`."""
    wanted = ",".join(presets)
    stack = private_stack("test-images", {**(hosts or {}), "SVC_PRESETS": wanted}, processes=())
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
    end_as_by_ctrl_c()
    let_others_read()
    with explained():
        known = production_settings()
        ensure_images(hosts={name: known[name] for name in HOST_SETTINGS if name in known})


if __name__ == "__main__":
    main()
