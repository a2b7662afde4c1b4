"""Files of a running sandbox: write a batch, read one."""
from collections.abc import Sequence
from dataclasses import dataclass

from models.users import User
from services import sandboxes
from services.activity import in_use
from services.errors import Forbidden, InvalidRequest, NotFound, ServiceError, TooLarge
from services.execs import connect, lost
from services.protocols import Deps, GuestRefused, GuestUnreachable

READ_CAP_BYTES = 64 * 1024 * 1024
_HOLD_S = 120.0


@dataclass(frozen=True)
class FileItem:
    """One file to write: absolute or home-relative `path`, `content`, permission bits `mode`."""

    path: str
    content: bytes
    mode: int


def write(
    deps: Deps, owner: User, sandbox_id: str, items: Sequence[FileItem], *, pinned_node: str | None = None
) -> None:
    """Write all items in order, each in one step; a failure names its path and leaves that file as it was."""
    sandbox = sandboxes.get_owned(owner, sandbox_id, pinned_node=pinned_node)
    with in_use(sandbox, for_s=_HOLD_S, what="writing files"):
        guest = connect(deps, sandbox)
        for item in items:
            try:
                guest.write_file(item.path, [item.content], mode=item.mode, size_bytes=len(item.content))
            except GuestRefused as refusal:
                raise _refused(refusal, item.path) from refusal
            except GuestUnreachable as error:
                raise lost(sandbox, "the write") from error


def read(deps: Deps, owner: User, sandbox_id: str, path: str, *, pinned_node: str | None = None) -> bytes:
    """The bytes of a file, at most 64 MiB; raises NotFound, InvalidRequest, TooLarge."""
    sandbox = sandboxes.get_owned(owner, sandbox_id, pinned_node=pinned_node)
    with in_use(sandbox, for_s=_HOLD_S, what="reading files"):
        try:
            return connect(deps, sandbox).read_file(path, cap_bytes=READ_CAP_BYTES)
        except GuestRefused as refusal:
            raise _refused(refusal, path) from refusal
        except GuestUnreachable as error:
            raise lost(sandbox, "the read") from error


def _refused(refusal: GuestRefused, path: str) -> ServiceError:
    if refusal.code == "not_found":
        return NotFound(f"{path}: no such file in the sandbox")
    if refusal.code == "too_large":
        return TooLarge(f"{path}: larger than {READ_CAP_BYTES} bytes")
    if refusal.code == "permission":
        return Forbidden(f"{path}: the guest does not allow it")
    return InvalidRequest(f"{path}: {refusal.message}")
