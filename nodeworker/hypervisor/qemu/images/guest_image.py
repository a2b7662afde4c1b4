"""The guest image a node boots: `images/current` under the image directory, described by its
image.json."""
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.presets import POINTER as PRESETS_POINTER
from nodeworker.disks.durable import read_json
from nodeworker.hypervisor.driver import DriverError

# Held by `make image` while it builds, and here by whoever must have images stay as they are.
BUILD_LOCK = ".build.lock"


@dataclass(frozen=True)
class Image:
    """One immutable image; its key is the name of its directory, and `build_key` also tells builds
    of one recipe from each other, whose bytes differ. `agent_token` is what its agent asks for
    after a cold boot, known to root only."""

    key: str
    build_key: str
    directory: Path
    machine: str
    command_line: str
    kernel: Path
    initrd: Path | None
    rootfs: Path
    cpu: str
    agent_token: str

    @property
    def disk_bytes(self) -> int:
        """Size of the root disk as the guest sees it."""
        return self.rootfs.stat().st_size


def load_image(directory: Path) -> Image:
    """Read one image directory; raises DriverError if there is no complete image."""
    image = find_image(directory)
    if image is None:
        raise DriverError(f"no guest image at {directory}: build it with `make image`")
    return image


def find_image(directory: Path) -> Image | None:
    """As `load_image`; None if there is no complete image."""
    record = read_json(directory / "image.json")
    if record is None:
        return None
    # Each build makes a token of its own.
    build = hashlib.sha256(record["agentToken"].encode()).hexdigest()[:12]
    return Image(
        key=directory.name, build_key=f"{record['key']}-{build}", directory=directory,
        machine=record["machine"], command_line=record["cmdline"],
        kernel=directory / record["kernel"],
        initrd=directory / record["initrd"] if record["initrd"] else None,
        rootfs=directory / record["rootfs"], cpu=record["cpu"], agent_token=record["agentToken"],
    )


def current_image(image_dir: Path) -> Image:
    """The image new sandboxes boot. Raises DriverError if none is built."""
    return load_image(Path(os.path.realpath(image_dir / "images" / "current")))


def presets_image(image_dir: Path) -> Image | None:
    """The image that new sandboxes with an agent preset boot; None if none is built."""
    pointer = image_dir / "images" / PRESETS_POINTER
    return load_image(Path(os.path.realpath(pointer))) if pointer.exists() else None


def find_presets(image: Image) -> dict[str, Any] | None:
    """The entry of each preset in an image (see `guest.presets`); None if it is a plain one."""
    record = read_json(image.directory / "presets.json")
    return record["presets"] if record else None


def image_of(image_dir: Path, key: str) -> Image:
    """The image with this key, for machines made on an older one. Raises DriverError if it is
    gone."""
    return load_image(image_dir / "images" / key)


def list_images(image_dir: Path) -> list[Image]:
    """Every complete image of this host."""
    directories = [path for path in (image_dir / "images").iterdir()
                   if not path.is_symlink() and not path.name.startswith(".")]
    return [image for image in map(find_image, sorted(directories)) if image is not None]
