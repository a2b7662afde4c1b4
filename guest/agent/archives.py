"""Carries a directory tree out of the guest and into it as a tar stream, made and read by the
guest's GNU tar.

1. The tar is a process group of its own; its pipe is moved frame by frame, so that a slow peer
stops tar, not memory. 2. The result is sent only after tar has ended well: a stream without it is a
broken one, however complete it looks. 3. If the peer goes away, or anything else goes wrong, the
group is killed.
"""
import os
import select
import signal
import stat
import subprocess
import threading
from typing import IO, Any

from .channel import Channel, Work
from .commands import expose_to_oom_killer
from .files import make_parents, refuse_os_errors
from .protocol import BAD_REQUEST, CHUNK_BYTES, DATA, FAILED, Refused
from .requests import BASE_ENV, guest_path

# Where it is on every base, with /usr merged or not.
TAR = "/bin/tar"
# In the C locale names are bytes to tar, whatever encoding they are in, and its messages are plain
# ASCII.
_ENV = BASE_ENV | {"LC_ALL": "C"}
_COMMON = ["--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls", "--file=-"]
# pax keeps long names, big files, attributes and fractions of a second; the other two times would
# be its bulk.
_CREATE = [TAR, "--create", "--format=posix", "--pax-option=delete=atime,delete=ctime", "--sparse",
           "--one-file-system", *_COMMON]
_EXTRACT = [
    TAR, "--extract", "--same-owner", "--preserve-permissions", "--delay-directory-restore",
    *_COMMON
]
# 1: files changed or vanished while they were read, which is the caller's affair, as with any
# backup of a live system.
_GOOD_ENDS = {"create": (0, 1), "extract": (0,)}
_BLOCK_BYTES = 512
_END_MARK = bytes(2 * _BLOCK_BYTES)
_COMPLAINT_BYTES = 1000


def archiving(request: dict[str, Any], root: str) -> Work:
    """The work of an `archive`: the contents of a directory as an uncompressed tar in DATA
    frames."""
    path = guest_path(request, "directory")

    def work(channel: Channel) -> dict[str, Any]:
        with refuse_os_errors(path):
            _require_directory(root + path)
        sent = 0
        with _Tar("create", [*_CREATE, f"--directory={root}{path}", "."], channel) as tar:
            while chunk := tar.read():
                channel.send(DATA, chunk)
                sent += len(chunk)
            tar.finish()
        return {"sizeBytes": sent}

    return work


def unarchiving(request: dict[str, Any], root: str) -> Work:
    """The work of an `unarchive`: the DATA frames, a tar, are unpacked over a directory, which is
    made if need be.

    What a broken stream held before its break has been unpacked by then; the failure says that it
    is not all.
    """
    path = guest_path(request, "directory")

    def work(channel: Channel) -> dict[str, Any]:
        with refuse_os_errors(path):
            make_parents(root + path)
            _require_directory(root + path)
        received, tail = 0, b""
        with _Tar("extract", [*_EXTRACT, f"--directory={root}{path}"], channel) as tar:
            while payload := channel.receive_data():
                tar.write(payload)
                received += len(payload)
                tail = (tail + payload)[-len(_END_MARK):]
            # tar itself accepts a stream that was cut between two files.
            if tail != _END_MARK or received % _BLOCK_BYTES:
                raise Refused(BAD_REQUEST, "the archive is cut short: its end mark is missing")
            tar.finish()
        return {"sizeBytes": received}

    return work


class _Tar:
    """A running tar, its one data pipe and the last of its complaints; killed with its group on
    leaving."""

    def __init__(self, what: str, argv: list[str], channel: Channel) -> None:
        self._what = what
        self._channel = channel
        making = what == "create"
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL if making else subprocess.PIPE, stderr=subprocess.PIPE,
            stdout=subprocess.PIPE if making else subprocess.DEVNULL, env=_ENV,
            start_new_session=True, bufsize=0)
        expose_to_oom_killer(self._process.pid)
        self._complaints = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        pipe = self._process.stdout or self._process.stdin
        assert pipe
        self._pipe: IO[bytes] = pipe
        os.set_blocking(pipe.fileno(), False)

    def __enter__(self) -> "_Tar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def read(self) -> bytes:
        """What tar has written next; empty at its end."""
        self._channel.wait_for(self._pipe.fileno(), select.POLLIN)
        return os.read(self._pipe.fileno(), CHUNK_BYTES)

    def write(self, payload: bytes) -> None:
        """Hand tar the next part of the archive; raises Refused if it has given up."""
        remaining = memoryview(payload)
        try:
            while remaining:
                self._channel.wait_for(self._pipe.fileno(), select.POLLOUT)
                remaining = remaining[os.write(self._pipe.fileno(), remaining):]
        except BrokenPipeError:
            self.finish()
            raise Refused(BAD_REQUEST, "there is more after the end of the archive") from None

    def finish(self) -> None:
        """Wait for tar's end; raises Refused with its last words unless it ended well."""
        self._pipe.close()
        ended = os.pidfd_open(self._process.pid)
        try:
            self._channel.wait_for(ended, select.POLLIN)
        finally:
            os.close(ended)
        if self._process.wait() not in _GOOD_ENDS[self._what]:
            # a grandchild may hold the pipe open; what it says is not waited for
            self._listener.join(1.0)
            raise Refused(FAILED, f"tar could not {self._what} the archive: "
                                  f"{self._complaints.decode('ascii', 'replace').strip()}")

    def _listen(self) -> None:
        complaints = self._process.stderr
        assert complaints
        while said := complaints.read(CHUNK_BYTES):
            self._complaints = (self._complaints + said)[-_COMPLAINT_BYTES:]


def _require_directory(path: str) -> None:
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise Refused(BAD_REQUEST, "the path is not a directory")
