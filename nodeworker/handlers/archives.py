"""Moves a project directory between a running guest and the object store, as a stream that is
nowhere held as a whole.

Out: 1. what an earlier attempt left in the store is removed; 2. the guest's tar is hashed,
compressed and stored while it comes; 3. the object's size is looked up. Each attempt has a key of
its own, so one that lost its lease cannot spoil the object of the one that counts. In: 4. the
directory is emptied; 5. the object is decompressed, hashed and unpacked while it comes, and the
copy is good only if the hash is the one of the row.
"""
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentRefused, AgentTooSlow
from nodeworker.faults import fault
from nodeworker.hypervisor.driver import DriverError
from nodeworker.wiring import NodeDeps
from objects.store import ObjectMissing, ObjectStore, StoreUnavailable
from services.hosts.assignments import SandboxOnNode
from services.snapshots import needed_on_node
from services.snapshots.needed_on_node import StoredDirectory
from services.snapshots.stored_objects import SNAPSHOTS, archive_key, folder, owner_of

_PIECE_BYTES = 1024 * 1024
# gzip's format; the fastest level, because the guest waits for it.
_GZIP, _LEVEL = 31, 1


class ArchiveFailed(DriverError):
    """This attempt came to nothing, another may not; the text may be shown to the owner."""


class ArchiveUnusable(DriverError):
    """No attempt will succeed; the text may be shown to the owner."""


@dataclass(frozen=True)
class StoredArchive:
    """A complete object: `sha` and `size_bytes` are of the tar, `stored_bytes` is the object's
    size."""

    key: str
    sha: str
    size_bytes: int
    stored_bytes: int


def save(deps: NodeDeps, sandbox: SandboxOnNode, snapshot_id: str, attempt: int) -> StoredArchive:
    """Store the project directory of a running sandbox; raises ArchiveFailed, ArchiveUnusable, and
    leaves nothing."""
    store, settings = ObjectStore(deps.settings), deps.settings
    meter = _Meter(settings.archive_max_mb * 1024 * 1024)
    key = archive_key(snapshot_id, attempt)
    try:
        # never a later one, which may be the one that counts by now
        for earlier in range(1, attempt):
            store.remove_all(archive_key(snapshot_id, earlier))
        fault("archive.begun")
        tar = deps.agent(sandbox).archive(sandbox.cwd, settings.archive_timeout_s,
                                          min_bytes_per_s=settings.archive_min_kib_per_s * 1024)
        stored_bytes = store.put_stream(key, compress(meter.over(tar)))
        fault("archive.stored")
        if store.find_size(key) != stored_bytes:
            raise ArchiveFailed("The object store did not keep the archive whole.")
    except StoreUnavailable as error:
        raise ArchiveFailed("The object store did not take the archive.") from error
    except AgentRefused as refusal:
        raise ArchiveUnusable(
            f"The sandbox could not archive {sandbox.cwd}: {refusal.message}") from refusal
    except AgentTooSlow as error:
        raise ArchiveUnusable(
            "The sandbox sent its project directory too slowly, less than"
            f" {settings.archive_min_kib_per_s} KiB/s.") from error
    except AgentError as error:
        raise ArchiveFailed("The sandbox did not send its project directory.") from error
    return StoredArchive(key, meter.sha, meter.size_bytes, stored_bytes)


def discard(deps: NodeDeps, snapshot_id: str, attempt: int) -> None:
    """Remove the object of an attempt that does not count; raises StoreUnavailable."""
    ObjectStore(deps.settings).remove_all(archive_key(snapshot_id, attempt))


def discard_abandoned(deps: NodeDeps) -> None:
    """Remove what this node's archives left half-stored that failed while no worker was there to do
    it.

    Raises StoreUnavailable.
    """
    store = ObjectStore(deps.settings)
    found = {owner_of(upload["Key"]) for upload in store.list_uploads(SNAPSHOTS)}
    for snapshot_id in needed_on_node.list_failed_archives(deps.settings.node_id, found):
        store.remove_all(folder(snapshot_id))


def load(deps: NodeDeps, sandbox: SandboxOnNode, taken: StoredDirectory) -> None:
    """Make the directory of a new, running machine what it was when `taken` was, flushed to its
    disk.

    Raises ArchiveFailed, ArchiveUnusable; the machine is of no use then.
    """
    agent, timeout_s = deps.agent(sandbox), deps.settings.archive_timeout_s
    meter = _Meter(taken.size_bytes)
    try:
        _empty(agent, taken.cwd)
        fault("unarchive.emptied")
        stored = ObjectStore(deps.settings).get_stream(taken.archive_key)
        agent.unarchive(taken.cwd, meter.over(decompress(stored)), timeout_s,
                        min_bytes_per_s=deps.settings.archive_min_kib_per_s * 1024)
        if meter.sha != taken.rootfs_sha:
            raise ArchiveUnusable(f"The archive of snapshot {taken.id} is damaged.")
        agent.sync(timeout_s)
        fault("unarchive.unpacked")
    except StoreUnavailable as error:
        raise ArchiveFailed("The object store did not give the snapshot's archive.") from error
    except (ObjectMissing, zlib.error) as error:
        raise ArchiveUnusable(
            f"The archive of snapshot {taken.id} is missing or damaged.") from error
    except AgentRefused as refusal:
        raise ArchiveUnusable(f"The project could not be unpacked: {refusal.message}") from refusal
    except AgentTooSlow as error:
        raise ArchiveUnusable(
            "The sandbox unpacked the project too slowly, less than"
            f" {deps.settings.archive_min_kib_per_s} KiB/s.") from error
    except AgentError as error:
        raise ArchiveFailed("The project could not be unpacked in time.") from error


def _empty(agent: AgentClient, directory: str) -> None:
    """Remove what a new machine has in its project directory: a copy has what was archived and
    nothing else."""
    result = agent.exec(["find", directory, "-xdev", "-mindepth", "1", "-delete"])
    if result.exit_code:
        raise ArchiveFailed(f"{directory} could not be emptied.")


class _Meter:
    """Counts and hashes a stream as it passes, up to `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    @property
    def sha(self) -> str:
        """SHA-256 of what has passed, in hex."""
        return self._hash.hexdigest()

    def over(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same chunks; raises ArchiveUnusable beyond the limit."""
        for chunk in chunks:
            self.size_bytes += len(chunk)
            if self.size_bytes > self._limit_bytes:
                raise ArchiveUnusable(f"The archive is larger than {self._limit_bytes} bytes.")
            self._hash.update(chunk)
            yield chunk


def compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """`chunks` as one gzip stream."""
    compressor = zlib.compressobj(_LEVEL, wbits=_GZIP)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a gzip stream, in pieces that stay small whatever it holds; raises zlib.error
    if it is broken."""
    decompressor = zlib.decompressobj(wbits=_GZIP)
    for chunk in chunks:
        while chunk and not decompressor.eof:
            yield decompressor.decompress(chunk, _PIECE_BYTES)
            chunk = decompressor.unconsumed_tail
    if not decompressor.eof:
        raise zlib.error("the stream ends early")
