"""Writes and reads whole files of the guest; a write either replaces the file completely or leaves
the old one."""
import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Any

from .channel import Channel, Work
from .protocol import (
    BAD_REQUEST,
    CHUNK_BYTES,
    DATA,
    FAILED,
    NO_SPACE,
    NOT_A_FILE,
    NOT_FOUND,
    PERMISSION,
    TOO_LARGE,
    Refused,
)
from .requests import guest_path, integer

MAX_FILE_BYTES = 1 << 50
# Everything else that goes wrong is no fault of the request.
_CODES = {
    errno.ENOENT: NOT_FOUND,
    errno.EISDIR: NOT_A_FILE, errno.ENOTDIR: NOT_A_FILE,
    errno.EACCES: PERMISSION, errno.EPERM: PERMISSION,
    errno.ENAMETOOLONG: BAD_REQUEST, errno.ELOOP: BAD_REQUEST,
    errno.ENOSPC: NO_SPACE, errno.EDQUOT: NO_SPACE,
}


def writing(request: dict[str, Any], root: str) -> Work:
    """The work of a `write`: parents are made, the stream goes to a temporary file beside the
    target, then a rename."""
    path = guest_path(request)
    mode = integer(request, "mode", 0, 0o7777, 0o644)
    expected = integer(request, "sizeBytes", 0,
                       MAX_FILE_BYTES) if request.get("sizeBytes") is not None else None

    def work(channel: Channel) -> dict[str, Any]:
        with refuse_os_errors(path):
            target = os.path.realpath(root + path)
            _require_file(target, missing_ok=True)
            owner = make_parents(os.path.dirname(target))
            descriptor, temporary = _open_beside(target)
        try:
            size = _store(channel, descriptor, expected, path)
            with refuse_os_errors(path):
                os.fchown(descriptor, *_owner_of(target, owner))
                os.fchmod(descriptor, mode)  # after the owner, whose change takes set-user-id away
                os.rename(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)
        return {"sizeBytes": size}

    return work


def reading(request: dict[str, Any], root: str) -> Work:
    """The work of a `read`: the file in DATA frames; refused as too large before or, if it grows,
    during them."""
    path = guest_path(request)
    limit = integer(request, "maxBytes", 0, MAX_FILE_BYTES, MAX_FILE_BYTES)

    def work(channel: Channel) -> dict[str, Any]:
        with refuse_os_errors(path):
            _require_file(root + path)
            descriptor = os.open(root + path, os.O_RDONLY | os.O_NONBLOCK)
        sent = 0
        try:
            if os.fstat(descriptor).st_size > limit:
                raise Refused(TOO_LARGE, f"{path} is larger than {limit} bytes")
            while chunk := _read_chunk(descriptor, path):
                sent += len(chunk)
                if sent > limit:
                    raise Refused(TOO_LARGE, f"{path} is larger than {limit} bytes")
                channel.send(DATA, chunk)
        finally:
            os.close(descriptor)
        return {"sizeBytes": sent}

    return work


@contextlib.contextmanager
def refuse_os_errors(path: str) -> Iterator[None]:
    """Turn what the file system says about `path` into a refusal the service understands."""
    try:
        yield
    except OSError as error:
        code = _CODES.get(error.errno or 0, FAILED)
        raise Refused(code, f"{path}: {error.strerror}") from error
    except RecursionError as error:  # of realpath, which calls itself for each link
        raise Refused(BAD_REQUEST, f"{path}: {os.strerror(errno.ELOOP)}") from error


def _require_file(path: str, *, missing_ok: bool = False) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if missing_ok:
            return
        raise
    if not stat.S_ISREG(mode):
        raise Refused(NOT_A_FILE, "the path is not a regular file")


def make_parents(directory: str) -> tuple[int, int]:
    """Make `directory` with its parents, owned like the nearest one that existed; returns that
    owner."""
    missing = []
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    facts = os.stat(directory)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o755)
            os.chown(each, facts.st_uid, facts.st_gid)
    return facts.st_uid, facts.st_gid


def _open_beside(target: str) -> tuple[int, str]:
    """A new, private temporary file in the directory of `target`, so that a rename can replace the
    target at once."""
    temporary = os.path.join(os.path.dirname(target),
                             f".svc-write-{os.getpid()}-{os.urandom(4).hex()}")
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), temporary


def _owner_of(target: str, parent_owner: tuple[int, int]) -> tuple[int, int]:
    """Who shall own the written file: the owner of the one it replaces, else the owner of its
    directory."""
    try:
        facts = os.stat(target)
    except FileNotFoundError:
        return parent_owner
    return facts.st_uid, facts.st_gid


def _store(channel: Channel, descriptor: int, expected: int | None, path: str) -> int:
    """Copy the DATA frames up to the empty one into `descriptor`; returns how many bytes it was."""
    size = 0
    while payload := channel.receive_data():
        size += len(payload)
        if expected is not None and size > expected:
            raise Refused(BAD_REQUEST, f"more than the announced {expected} bytes were sent")
        with refuse_os_errors(path):
            _write_all(descriptor, payload)
    if expected is not None and size != expected:
        raise Refused(BAD_REQUEST, f"{size} bytes were sent where {expected} were announced")
    return size


def _write_all(descriptor: int, payload: bytes) -> None:
    remaining = memoryview(payload)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining):]


def _read_chunk(descriptor: int, path: str) -> bytes:
    with refuse_os_errors(path):
        return os.read(descriptor, CHUNK_BYTES)
