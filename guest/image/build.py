"""Builds the guest's disk image: `python -m guest.image.build --image-dir DIR [--distro NAME]`.

1. One builder at a time per directory; leftovers of a builder that was killed are removed.
2. An image whose recipe has not changed is there already: only `current` is pointed at it.
3. Otherwise it is made in a directory of its own and renamed into place when it is complete, so
   that nobody ever sees half an image, and an image once there never changes.
4. Where the archive of Ubuntu cannot be reached, Debian is built instead, with a notice.
"""
import argparse
import json
import os
import secrets
import shutil
import sys
from pathlib import Path

from guest.agent.protocol import AGENT_VERSION
from guest.image.bootstrap import bootstrap
from guest.image.bun import fetch_bun
from guest.image.commands import require, say
from guest.image.distros import DISTROS, FALLBACK, Distro
from guest.image.errors import ArchiveUnreachable, ImageError
from guest.image.filesystem import make_filesystem
from guest.image.initrd import make_initrd
from guest.image.published import only_builder, point
from guest.image.recipe import image_key

_WORK_PREFIX = ".building-"
DEFAULT_DNS = ("1.1.1.1", "8.8.8.8")


def build(image_dir: Path, distro: Distro, dns: tuple[str, ...] = DEFAULT_DNS) -> Path:
    """Make sure that the image of `distro` exists and is current; returns its directory. Raises
    ImageError."""
    images = image_dir / "images"
    images.mkdir(parents=True, exist_ok=True)
    with only_builder(image_dir / ".build.lock", "build"):
        for leftover in images.glob(_WORK_PREFIX + "*"):
            shutil.rmtree(leftover)
        key = _build_or_fall_back(images, distro, dns)
        point(images / "current", key)
    return images / key


def _build_or_fall_back(images: Path, distro: Distro, dns: tuple[str, ...]) -> str:
    """The key of the image of `distro`, or of its fallback: once chosen, that stays until the mark
    of it is removed."""
    mark = images / f".unreachable-{image_key(distro, dns)}"
    fallback = FALLBACK.get(distro.name)
    if fallback and mark.exists():
        say(
            f"NOTICE: {fallback.name} stands in for {distro.name}, whose archive could not be"
            f" reached; remove {mark} to try again"
        )
        return _build_if_missing(images, fallback, dns)
    try:
        return _build_if_missing(images, distro, dns)
    except ArchiveUnreachable as unreachable:
        if not fallback:
            raise
        say(f"NOTICE: {unreachable}")
        say(f"NOTICE: falling back to {fallback.name}")
        key = _build_if_missing(images, fallback, dns)
        mark.touch()
        return key


def _build_if_missing(images: Path, distro: Distro, dns: tuple[str, ...]) -> str:
    key = image_key(distro, dns)
    if (images / key).exists():
        say(f"{key} is up to date")
    else:
        _make(images, distro, key, dns)
    return key


def _make(images: Path, distro: Distro, key: str, dns: tuple[str, ...]) -> None:
    """Build one image from nothing; afterwards it is complete under its key, or nothing of it is
    left."""
    require("mmdebstrap", "mke2fs", "gpgv")
    if os.geteuid() != 0:
        raise ImageError("an image can only be built by root; run it again with sudo")
    work = images / f"{_WORK_PREFIX}{key}"
    work.mkdir(mode=0o700)
    try:
        say(f"building {key} (about two minutes)")
        result = work / "image"
        result.mkdir(mode=0o700)
        _fill(work, result, distro, key, dns)
        os.sync()
        os.rename(result, images / key)
        say(f"{key} is built")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fill(work: Path, result: Path, distro: Distro, key: str, dns: tuple[str, ...]) -> None:
    token = secrets.token_urlsafe(32)
    token_file = work / "token"
    token_file.write_text(token)
    say("1/5 fetching Bun")
    bun = fetch_bun(work / "bun")
    say(f"2/5 installing {distro.name} and {len(distro.packages)} packages with what they need")
    rootfs = work / "rootfs"
    bootstrap(distro, rootfs, bun=bun, token_file=token_file, dns=dns)
    say("3/5 taking the kernel out")
    _take_kernel(rootfs, result, distro)
    say("4/5 writing the file system")
    make_filesystem(rootfs, result / "rootfs.raw")
    say("5/5 describing it")
    facts = {
        "key": key,
        "distro": distro.name,
        "machine": distro.machine,
        "cpu": "max",
        "cmdline": distro.cmdline,
        "kernel": "vmlinuz",
        "initrd": "initrd" if distro.initrd_modules else None,
        "rootfs": "rootfs.raw",
        "agentToken": token,
        "agentVersion": AGENT_VERSION,
    }
    (result / "image.json").touch(mode=0o600)
    (result / "image.json").write_text(json.dumps(facts, indent=2) + "\n")


def _take_kernel(rootfs: Path, result: Path, distro: Distro) -> None:
    """QEMU loads the kernel from the host; the guest's own /boot is only ballast."""
    kernel = max((rootfs / "boot").glob("vmlinuz-*"), default=None)
    if kernel is None:
        raise ImageError(
            f"{distro.name} installed no kernel; correct the package list in guest/image/distros.py"
        )
    shutil.copy(kernel, result / "vmlinuz")
    if distro.initrd_modules:
        make_initrd(rootfs, distro.initrd_modules, result / "initrd")
    for file in (rootfs / "boot").iterdir():
        file.unlink()


def main() -> int:
    """Command line entry; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m guest.image.build",
                                     description="Build the guest's disk image.")
    parser.add_argument("--image-dir", type=Path, required=True)
    parser.add_argument("--distro", choices=sorted(DISTROS), default="ubuntu-22.04")
    parser.add_argument("--dns", default=",".join(DEFAULT_DNS),
                        help="name servers of the guest, separated by commas")
    options = parser.parse_args()
    try:
        directory = build(options.image_dir.absolute(), DISTROS[options.distro],
                          tuple(options.dns.split(",")))
    except ImageError as error:
        print(f"[image] ERROR: {error}", file=sys.stderr)
        return 1
    say(f"current image: {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
