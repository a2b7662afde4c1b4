"""Has the image with the agent presets built by a process of its own, `guest.presets.build`, at the
lowest priority."""
import re
import subprocess
import sys
from pathlib import Path

from config.settings import Settings
from guest.presets import LOCK
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError, Progress

# The builder gives each preset ten minutes.
_LIMIT_S = 5400
# Of a line of progress, what comes after the time of day.
_LINE = re.compile(r"\[image\] \d\d:\d\d:\d\d (.*)")
_LAST_LINES = 5


def build_presets_image(settings: Settings, progress: Progress) -> None:
    """Bring the image up to date; `progress` is told what is being done.

    A preset that fails is told by `presets_facts`. Raises DriverError if there is no image at all
    or none that is up to date. A builder whose caller dies ends at its next line; what it has
    installed is kept for the next one.
    """
    argv = ["nice", "-n", "10", sys.executable, "-m", "guest.presets.build",
            f"--image-dir={settings.image_dir}", f"--presets={','.join(settings.presets)}",
            f"--keep-free-mb={settings.disk_floor_mb}"]
    lines: list[str] = []
    with subprocess.Popen(["timeout", "--kill-after=10", str(_LIMIT_S), *argv], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as builder:
        assert builder.stdout is not None
        for line in builder.stdout:
            lines = [*lines, line.strip()][-_LAST_LINES:]
            told = _LINE.match(line)
            if told and not told[1].startswith("NOTICE"):
                progress(f"presets: {told[1]}")
    if builder.returncode:
        raise DriverError(f"the presets image was not built: {' '.join(lines)}")


def is_building(image_dir: Path) -> bool:
    """True while somebody builds the image."""
    return locks.is_locked(image_dir / LOCK)
