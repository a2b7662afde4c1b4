"""The guest image a node boots: `images/current` under the image directory, described by its
image.json."""
import os
from dataclasses import dataclass
from pathlib import Path

from nodeworker.disks.durable import read_json
from nodeworker.hypervisor.driver import DriverError


@dataclass(frozen=True)
class Image:
    """One immutable image; `agent_token` is what its agent asks for after a cold boot, known to
    root only."""

    key: str
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
    record = read_json(directory / "image.json")
    if record is None:
        raise DriverError(f"no guest image at {directory}: build it with `make image`")
    return Image(
        key=record["key"], directory=directory, machine=record["machine"],
        command_line=record["cmdline"], kernel=directory / record["kernel"],
        initrd=directory / record["initrd"] if record["initrd"] else None,
        rootfs=directory / record["rootfs"], cpu=record["cpu"], agent_token=record["agentToken"],
    )


def current_image(image_dir: Path) -> Image:
    """The image new sandboxes boot. Raises DriverError if none is built."""
    return load_image(Path(os.path.realpath(image_dir / "images" / "current")))


def image_of(image_dir: Path, key: str) -> Image:
    """The image with this key, for machines made on an older one. Raises DriverError if it is
    gone."""
    return load_image(image_dir / "images" / key)
