"""How many creates have asked for each source of spares lately, told by all worker processes of a
node in files, one line for each create."""
import time
from pathlib import Path

WINDOW_S = 600.0
_SUFFIX = ".wanted"
_LONGEST_BYTES = 64 * 1024


def note(directory: Path, source: str) -> None:
    """A create has asked for this source now."""
    path = directory / f"{source}{_SUFFIX}"
    with path.open("a", encoding="ascii") as file:
        if file.tell() > _LONGEST_BYTES:
            file.truncate(0)
        file.write(f"{time.time():.0f}\n")


def count(directory: Path) -> dict[str, int]:
    """Creates of each source in the last `WINDOW_S`; those that nobody wants are forgotten, as
    is what a power failure left of a file."""
    since, found = time.time() - WINDOW_S, {}
    for path in directory.glob(f"*{_SUFFIX}"):
        recent = sum(when > since for when in _times(path))
        if recent:
            found[path.name.removesuffix(_SUFFIX)] = recent
        else:
            path.unlink(missing_ok=True)
    return found


def forget(directory: Path, source: str) -> None:
    """It counts as asked for by nobody."""
    (directory / f"{source}{_SUFFIX}").unlink(missing_ok=True)


def _times(path: Path) -> list[float]:
    try:
        return [float(line) for line in path.read_text(encoding="ascii").split()]
    except (FileNotFoundError, ValueError):
        return []
