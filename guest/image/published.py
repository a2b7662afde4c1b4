"""How images of either kind are published: made by one builder at a time, found by a name that
leads to the current one."""
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from guest.image.commands import say


@contextlib.contextmanager
def only_builder(lock_file: Path, build: str) -> Iterator[None]:
    """Be the only one that builds; `build` says of what, to those who wait."""
    with lock_file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another {build} is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def point(link: Path, key: str) -> None:
    """Let `link` name the image; a reader sees the old one or the new one, never none."""
    if link.is_symlink() and os.readlink(link) == key:
        return
    draft = link.with_name(f".{link.name}-new")
    draft.unlink(missing_ok=True)
    draft.symlink_to(key)
    os.replace(draft, link)
