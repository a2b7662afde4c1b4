"""Writes directories into the file system of an image, and reads files out of it, with debugfs:
nothing is mounted, and what is written belongs to root."""
import os
from collections.abc import Iterator
from pathlib import Path

from guest.image.commands import run
from guest.image.errors import ImageError

_TIMEOUT_S = 900.0
# debugfs takes names in double quotes, and has no way to write these.
_UNSPEAKABLE = set('"\n\r\\')


def read_file(image: Path, path: str, target: Path) -> None:
    """Copy one file of the image's file system to `target`. Raises ImageError."""
    run(["debugfs", "-R", f'dump "{path}" "{target}"', image], timeout_s=_TIMEOUT_S)
    if not target.exists() or not target.stat().st_size:
        raise ImageError(f"{image} holds no {path}")


def write_trees(image: Path, trees: dict[str, Path], script: Path, *,
                links: dict[str, str]) -> None:
    """Copy each directory of `trees` to the path that names it, which must be new, its parent
    there, then make the symbolic `links`; `script` is a file for the commands. Modes are kept.
    Raises ImageError, and then the image is worth nothing."""
    lines = [line for into, tree in trees.items() for line in _commands(tree, into)]
    lines += [f"symlink {_quoted(path)} {_quoted(target)}" for path, target in links.items()]
    script.write_text("\n".join(lines) + "\n")
    said = run(["debugfs", "-w", "-f", script, image], timeout_s=_TIMEOUT_S)
    # It ends with 0 whatever became of the commands, which it repeats.
    for line in said.splitlines():
        if not line.startswith(("debugfs", "Allocated inode:")):
            raise ImageError(f"writing into {image.name}: {line}")
    run(["e2fsck", "-f", "-n", image], timeout_s=_TIMEOUT_S)


def _commands(tree: Path, into: str) -> Iterator[str]:
    yield f"mkdir {_quoted(into)}"
    for folder, directories, files in os.walk(tree):
        place = Path(into) / Path(folder).relative_to(tree)
        yield f"cd {_quoted(place)}"
        for name in sorted(files):
            yield f"write {_quoted(Path(folder) / name)} {_quoted(name)}"
        for name in sorted(directories):
            yield f"mkdir {_quoted(name)}"


def _quoted(path: Path | str) -> str:
    text = str(path)
    if _UNSPEAKABLE & set(text):
        raise ImageError(f"the name {text!r} cannot be written into an image")
    return f'"{text}"'
