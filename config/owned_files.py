"""Files in the directories of the processes' accounts, as root writes and reads them.

Whoever has taken over a process may put a link there at any moment, which would lead root to a file
of its own. So no link in such a directory is followed. One in the place of the directory itself is
followed only where no account could have put it: an operator may keep a directory elsewhere.
"""
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    """A descriptor of a directory, for what is to be done in it. Raises OSError if that is a link
    and whoever owns the directory above is neither root nor ourselves."""
    trusted = directory.parent.stat().st_uid in (0, os.geteuid())
    descriptor = os.open(directory,
                         os.O_RDONLY | os.O_DIRECTORY | (0 if trusted else os.O_NOFOLLOW))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write(path: Path, content: bytes, mode: int = 0o600, *,
          owner: tuple[int, int] | None = None, durable: bool = False) -> None:
    """Write a file, whole or not at all; `durable` if it is to outlive a power failure.

    It belongs to `owner`, the numbers of a user and a group; if none is said and root writes it, to
    the owner of its directory.
    """
    draft = f"{path.name}.draft"
    with opened(path.parent) as directory:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)
        # Exclusively: there may be a link in its place again.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
        with os.fdopen(descriptor, "wb") as stream:
            if owner or os.geteuid() == 0:
                above = os.fstat(directory)
                os.fchown(descriptor, *(owner or (above.st_uid, above.st_gid)))
            os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(draft, path.name, src_dir_fd=directory, dst_dir_fd=directory)


def read(path: Path) -> bytes:
    """What is in a file. Raises OSError if it is a link."""
    with opened(path.parent) as directory:
        # Without waiting: it may be a pipe, into which nobody writes.
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK,
                             dir_fd=directory)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read()
