"""What files really occupy: allocated blocks, so that a sparse file counts for what was written to
it."""
import os
from pathlib import Path

_BLOCK_BYTES = 512


def occupied_bytes(path: Path) -> int:
    """Allocated bytes of one file, not following links; 0 if it is gone by now."""
    try:
        return os.lstat(path).st_blocks * _BLOCK_BYTES
    except FileNotFoundError:
        return 0


def tree_bytes(path: Path) -> int:
    """Allocated bytes of everything under `path`, itself included; what disappears meanwhile counts
    as 0."""
    total = occupied_bytes(path)
    try:
        entries = list(os.scandir(path))
    except (FileNotFoundError, NotADirectoryError):
        return total
    for entry in entries:
        is_directory = entry.is_dir(follow_symlinks=False)
        total += tree_bytes(Path(entry.path)) if is_directory else occupied_bytes(Path(entry.path))
    return total
