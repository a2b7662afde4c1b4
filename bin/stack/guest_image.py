"""How the guest image of a stack is built: the settings that the image is made of."""
import shlex

from config.settings import Settings


def build_command(settings: Settings) -> str:
    """The line of the shell that builds the image, or finds that it is there."""
    options = {"image-dir": settings.image_dir, "distro": settings.guest_distro,
               "dns": ",".join(settings.guest_dns)}
    words = (f"--{name}={shlex.quote(str(value))}" for name, value in options.items())
    return f"python -m guest.image.build {' '.join(words)}"
