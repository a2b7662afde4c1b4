"""Builds the presets image: `python -m guest.presets.build --image-dir DIR [--presets a,b]`.

1. One builder at a time per directory; leftovers of a builder that was killed are removed.
2. An image that has all that is asked for, on the current guest image, is there already: only
   `images/presets` is pointed at it.
3. Otherwise each preset is installed into a directory that later builds find again. One that
   cannot be installed fails alone, and the next build tries it again: it is part of the key.
4. The image is a copy of the guest image with the presets written into its file system, made in a
   directory of its own and renamed into place when it is complete.
"""
import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Collection
from pathlib import Path

from guest.image.commands import require, run, say
from guest.image.errors import ImageError
from guest.image.published import only_builder, point
from guest.presets import GUEST_DIR, LOCK, POINTER, SLUGS, TREES
from guest.presets.filesystem import read_file, write_trees
from guest.presets.install import install
from guest.presets.recipe import HERE, LFG_DIR, PRESETS, Preset, describe, image_key

# What is installed, the image, and a cache that is gone when a preset is installed.
_NEEDED_MB = 4096
_WORK_PREFIX = ".presets-building-"
_NOT_CHOSEN = "the operator of this host leaves it out (SVC_PRESETS)"


def build(image_dir: Path, chosen: Collection[str], *, keep_free_mb: int = 0) -> Path:
    """Make sure that the image with the presets `chosen` exists and is pointed at; returns its
    directory. Raises ImageError, also if less than `keep_free_mb` of the disk would be left; a
    preset that fails is told in its presets.json instead."""
    unknown = set(chosen) - set(SLUGS)
    if unknown:
        raise ImageError(f"SVC_PRESETS names {', '.join(sorted(unknown))}, which is no preset;"
                         f" presets are {', '.join(SLUGS)}")
    images = image_dir / "images"
    base = Path(os.path.realpath(images / "current"))
    if not (base / "image.json").exists():
        raise ImageError(f"no guest image at {base}: build it with `make image`")
    with only_builder(image_dir / LOCK, "build of presets"):
        for leftover in (*images.glob(_WORK_PREFIX + "*"), *_trees(image_dir).glob(".*")):
            shutil.rmtree(leftover)
        key = image_key(base.name, chosen)
        if not (images / key).exists():
            _check_space(image_dir, keep_free_mb)
            key = _build(image_dir, base, key, chosen)
        else:
            say(f"{key} is up to date")
        point(images / POINTER, key)
        _forget_trees(image_dir)
    return images / key


def _check_space(image_dir: Path, keep_free_mb: int) -> None:
    free_mb = shutil.disk_usage(image_dir).free // 1024 ** 2
    if free_mb < keep_free_mb + _NEEDED_MB:
        raise ImageError(f"{free_mb} MB are free on the disk of {image_dir}; {_NEEDED_MB} MB are"
                         f" needed and {keep_free_mb} MB stay free")


def _build(image_dir: Path, base: Path, key: str, chosen: Collection[str]) -> str:
    """Make the image and return its key, which names what failed."""
    require("debugfs", "e2fsck", "unshare", "setpriv")
    if os.geteuid() != 0:
        raise ImageError("an image can only be built by root; run it again with sudo")
    images = image_dir / "images"
    work = images / f"{_WORK_PREFIX}{key}"
    work.mkdir(mode=0o700)
    try:
        failed = _install_all(image_dir, base, work, chosen)
        key = "-no-".join([key, *sorted(set(failed) & set(chosen))])
        if (images / key).exists():
            say(f"{key} is there already")
            return key
        result = work / "image"
        result.mkdir(mode=0o700)
        _fill(image_dir, base, work, result, key, failed)
        os.sync()
        os.rename(result, images / key)
        say(f"{key} is built")
        return key
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _install_all(image_dir: Path, base: Path, work: Path,
                 chosen: Collection[str]) -> dict[str, str]:
    """Install what is chosen; why the others are not there, by slug."""
    bun = work / "bun"
    read_file(base / "rootfs.raw", "/usr/local/bin/bun", bun)
    bun.chmod(0o755)
    failed: dict[str, str] = {}
    for number, preset in enumerate(PRESETS.values(), start=1):
        if preset.slug not in chosen:
            failed[preset.slug] = _NOT_CHOSEN
            continue
        say(f"{number}/{len(PRESETS) + 1} fetching {preset.slug} {preset.version}")
        missing = [slug for slug in preset.needs if slug in failed]
        try:
            if missing:
                raise ImageError(f"it needs {missing[0]}: {failed[missing[0]]}")
            _install_if_missing(image_dir, preset, bun, work)
        except (ImageError, OSError) as error:
            failed[preset.slug] = str(error)
            say(f"NOTICE: {preset.slug} failed: {error}")
    return failed


def _install_if_missing(image_dir: Path, preset: Preset, bun: Path, work: Path) -> None:
    installed = _trees(image_dir) / preset.key
    if installed.exists():
        return
    draft = work / preset.slug
    draft.mkdir(mode=0o700)
    begun = time.monotonic()
    install(preset, bun, draft)
    size = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
    os.sync()
    installed.parent.mkdir(mode=0o700, exist_ok=True)
    os.rename(draft, installed)
    say(f"{preset.slug}: {size // 1_000_000} MB in {time.monotonic() - begun:.0f} s")


def _fill(image_dir: Path, base: Path, work: Path, result: Path, key: str,
          failed: dict[str, str]) -> None:
    total = len(PRESETS) + 1
    say(f"{total}/{total} writing the file system")
    record = {"presets": {slug: describe(preset, failed.get(slug))
                          for slug, preset in PRESETS.items()}}
    (result / "presets.json").write_text(json.dumps(record, indent=2) + "\n")
    facts = json.loads((base / "image.json").read_text())
    for name in (facts["kernel"], facts["initrd"]):
        if name:
            os.link(base / name, result / name)
    run(["cp", "--sparse=always", "--reflink=auto", base / facts["rootfs"], result / "rootfs.raw"],
        timeout_s=900)
    top = work / "top"
    top.mkdir()
    for path in (result / "presets.json", *HERE.glob("activate*.py")):
        shutil.copy(path, top)
    trees = {GUEST_DIR: top} | {
        f"{GUEST_DIR}/{slug}": _trees(image_dir) / preset.key
        for slug, preset in PRESETS.items() if slug not in failed
    }
    links = {}
    if "lfg" not in failed:
        trees |= {f"{GUEST_DIR}/lfg/app": _lfg_app(work)}
        links = {f"{GUEST_DIR}/lfg/start": "app/start"}
    write_trees(result / "rootfs.raw", trees, work / "script", links=links)
    facts |= {"key": key, "base": base.name}
    (result / "image.json").touch(mode=0o600)
    (result / "image.json").write_text(json.dumps(facts, indent=2) + "\n")


def _lfg_app(work: Path) -> Path:
    app = work / "app"
    shutil.copytree(LFG_DIR, app, ignore=shutil.ignore_patterns("__pycache__"))
    return app


def _trees(image_dir: Path) -> Path:
    """Where installed presets are kept for the next build."""
    return image_dir / TREES


def _forget_trees(image_dir: Path) -> None:
    """Remove what was installed by another recipe."""
    known = {preset.key for preset in PRESETS.values()}
    for path in _trees(image_dir).glob("*"):
        if path.name not in known:
            shutil.rmtree(path)


def main() -> int:
    """Command line entry; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m guest.presets.build",
                                     description="Build the image with the agent presets.")
    parser.add_argument("--image-dir", type=Path, required=True)
    parser.add_argument("--presets", default=",".join(SLUGS),
                        help="which ones, separated by commas")
    parser.add_argument("--keep-free-mb", type=int, default=0,
                        help="free space of the disk that nothing may take")
    options = parser.parse_args()
    chosen = [name.strip() for name in options.presets.split(",") if name.strip()]
    try:
        directory = build(options.image_dir.absolute(), chosen,
                          keep_free_mb=options.keep_free_mb)
    except ImageError as error:
        print(f"[image] ERROR: {error}", file=sys.stderr)
        return 1
    say(f"presets image: {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
