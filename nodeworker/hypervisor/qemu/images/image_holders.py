"""Who holds the images of a directory, which nodes of one host may share: node directories hold
them by name, processes by a lock. `prune.py` asks here before it removes one."""
import fcntl
import hashlib
import os
from pathlib import Path

from nodeworker.disks.durable import write_atomic

_REGISTER = "nodes"


def register(image_dir: Path, node_dir: Path) -> None:
    """Write down that the records under `node_dir` may refer to images and warm images of
    `image_dir`; idempotent."""
    entry = _entry(image_dir, node_dir)
    if not entry.exists():
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(entry, bytes(node_dir))


def unregister(image_dir: Path, node_dir: Path) -> None:
    """The node directory is gone for good, with all its records. Not registered: no-op."""
    _entry(image_dir, node_dir).unlink(missing_ok=True)


def _entry(image_dir: Path, node_dir: Path) -> Path:
    return image_dir / _REGISTER / hashlib.sha256(bytes(node_dir)).hexdigest()[:16]


def registered(image_dir: Path) -> dict[Path, Path]:
    """Node directories that have ever used `image_dir`, with the file that says so."""
    directory = image_dir / _REGISTER
    entries = directory.iterdir() if directory.is_dir() else []
    return {
        Path(os.fsdecode(entry.read_bytes())): entry
        for entry in entries
        if not entry.name.startswith(".")
    }


def hold(directory: Path) -> None:
    """Keep the image in `directory` from being pruned until this process and its forks have
    ended."""
    fcntl.flock(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
                fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_held(directory: Path) -> bool:
    """True while any process holds the image in `directory`."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
