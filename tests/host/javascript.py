"""The Bun of the guest image, for what users run with Node.js or Bun on their own machines."""
import os
import subprocess
from pathlib import Path

from bin.stack.site import ROOT

_IMAGE = ROOT / "var/images/images/current"


def bun() -> Path | None:
    """Bun out of the image of this checkout, taken out once for each image; None without one."""
    image = _IMAGE / "rootfs.raw"
    if not image.exists():
        return None
    binary = ROOT / "var/bun" / _IMAGE.resolve().name
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        partial = binary.with_suffix(f".{os.getpid()}")
        subprocess.run(["debugfs", "-R", f"dump /usr/local/bin/bun {partial}", image], check=True,
                       capture_output=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})
        partial.chmod(0o755)
        partial.rename(binary)
    return binary
