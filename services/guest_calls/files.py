"""Writes a batch of files into a running sandbox, reads one, uploads one that may be large."""
import posixpath
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from guest.agent.protocol import BAD_REQUEST, NOT_A_FILE, NOT_FOUND, PERMISSION, TOO_LARGE
from guest.client.errors import AgentError, AgentRefused
from models.database import connection
from models.sandboxes import Sandbox
from services.errors import Forbidden, InvalidRequest, NotFound, ServiceError, TooLarge, Unavailable
from services.guest_calls.guest import can_answer, connect, get_owned, refused, unreachable
from services.guest_calls.use_while_running import in_use, require_running
from services.hosts import placement
from services.operations.row_changes import changes
from services.protocols import Deps
from services.sandboxes import quotas
from services.sandboxes.caller import Caller

READ_CAP_BYTES = 64 * 1024 * 1024
_HOLD_S = 120.0
# A slow guest must be able to take the largest batch; each of its files has this long.
WRITE_LIMIT_S, _FILE_LIMIT_S = 600.0, 60.0
# A slow line must be able to take the largest read.
READ_LIMIT_S = 600.0
# A slow line must be able to send the largest upload.
UPLOAD_LIMIT_S = 3600.0


@dataclass(frozen=True)
class FileItem:
    """One file to write: absolute or home-relative `path`, `content`, permission bits `mode`."""

    path: str
    content: bytes
    mode: int


@dataclass(frozen=True)
class Uploaded:
    """A file that was uploaded: its absolute path in the guest, and its size."""

    path: str
    size_bytes: int


def write(deps: Deps, caller: Caller, sandbox_id: str, items: Sequence[FileItem]) -> None:
    """Write all items in order, each in one step; a failure names its path and leaves that file as
    it was. Raises Conflict, also for a full disk, InvalidRequest, Forbidden, Unavailable."""
    sandbox, until = get_owned(caller, sandbox_id), time.monotonic() + WRITE_LIMIT_S
    with in_use(sandbox, for_s=WRITE_LIMIT_S + _HOLD_S,
                what="writing files"), changes(sandbox.id) as changed:
        guest = connect(deps, sandbox)
        for item in items:
            try:
                guest.write_file(item.path, item.content, item.mode,
                                 timeout_s=min(until - time.monotonic(), _FILE_LIMIT_S),
                                 wanted=lambda: not changed() or can_answer(sandbox))
            except AgentRefused as refusal:
                raise _refused(refusal, item.path) from refusal
            except AgentError as error:
                raise unreachable(sandbox, f"the write of {item.path}") from error


def read(deps: Deps, caller: Caller, sandbox_id: str, path: str) -> Iterator[bytes]:
    """The bytes of a file in pieces, at most 64 MiB; raises NotFound, InvalidRequest, TooLarge,
    Unavailable.

    The call itself raises what happens before the first piece. The sandbox is held awake until the
    last one, or until the iteration is given up.
    """
    pieces = _read(deps, get_owned(caller, sandbox_id), path)
    first = next(pieces, b"")
    return _after(first, pieces)


def _read(deps: Deps, sandbox: Sandbox, path: str) -> Iterator[bytes]:
    with in_use(sandbox, for_s=READ_LIMIT_S + _HOLD_S,
                what="reading files"), changes(sandbox.id) as changed:
        try:
            yield from connect(deps, sandbox).stream_file(
                path, READ_CAP_BYTES, timeout_s=READ_LIMIT_S,
                wanted=lambda: not changed() or can_answer(sandbox))
        except AgentRefused as refusal:
            raise _refused(refusal, path) from refusal
        except AgentError as error:
            raise unreachable(sandbox, "the read") from error


def _after(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def upload(
    deps: Deps,
    caller: Caller,
    sandbox_id: str,
    path: str,
    content: Iterable[bytes],
    size_bytes: int | None,
) -> Uploaded:
    """Store `content` as one file; a relative `path` counts from the sandbox's working directory.

    The file is replaced as a whole, once all of `content` has come; whatever happens before, an
    exception of `content` included, leaves the old one. Raises Conflict, InvalidRequest, Forbidden,
    Unavailable, and what `content` raises.
    """
    sandbox = get_owned(caller, sandbox_id)
    require_running(sandbox, "an upload")
    placement.check_disk(sandbox.node_id)
    with connection():
        quotas.check_bytes(deps.settings, caller.owner)
    target = "/" + "/".join(filter(None, posixpath.join(sandbox.cwd, path).split("/")))
    counted = _Counted(content)
    with in_use(sandbox, for_s=UPLOAD_LIMIT_S, what="an upload"), changes(sandbox.id) as changed:
        try:
            stored_bytes = connect(deps, sandbox).write_file(
                target,
                counted,
                size_bytes=size_bytes,
                timeout_s=UPLOAD_LIMIT_S,
                wanted=lambda: not changed() or can_answer(sandbox),
            )
        except AgentRefused as refusal:
            raise _refused(refusal, target) from refusal
        except AgentError as error:
            raise unreachable(sandbox, "the upload") from error
    if not counted.ended or stored_bytes != counted.size_bytes:
        raise Unavailable("The sandbox did not confirm that it has the whole file.",
                          retry_after_s=2)
    return Uploaded(target, counted.size_bytes)


class _Counted:
    """Passes `content` on and knows how much of it there was, and whether it has ended."""

    def __init__(self, content: Iterable[bytes]) -> None:
        self._content = content
        self.size_bytes = 0
        self.ended = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._content:
            self.size_bytes += len(piece)
            yield piece
        self.ended = True


def _refused(refusal: AgentRefused, path: str) -> ServiceError:
    if refusal.code == NOT_FOUND:
        return NotFound(f"{path}: no such file in the sandbox")
    if refusal.code == TOO_LARGE:
        return TooLarge(f"{path}: larger than {READ_CAP_BYTES} bytes")
    if refusal.code == PERMISSION:
        return Forbidden(f"{path}: the guest does not allow it")
    if refusal.code in (BAD_REQUEST, NOT_A_FILE):
        return InvalidRequest(f"{path}: {refusal.message}")
    return refused(refusal, path)
