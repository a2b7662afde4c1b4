"""Bounds what guests store: of each prefix so many bytes and objects.

What a prefix holds is asked of the store when it is first written to, and again once much was added
or the bound is reached; what is added meanwhile is counted here, an object that is written over
twice. Such a look takes long where much is stored, so there is one of each prefix at a time, in
threads that do nothing else: who writes to that prefix waits for it, and nobody else. Parts of an
object that is not complete are in no list, so they are counted until it is. A prefix has a few
such uploads at a time, those counted that nothing was sent to, since a store may have a bound for
those of everybody; one to which nothing came for a while is given up where there are too many.
"""
import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.guest_gateway.rows import Result, Rows
from objects.store import StoredObject, StoreUnavailable
from services.errors import Forbidden, Unavailable

# Two snapshots of the largest database that fits a guest's disk, and what is between them.
BYTES_MOST, OBJECTS_MOST = 48 * 1024 ** 3, 100_000
_UPLOADS_MOST = 8
_LOOK_S, _PREFIXES_MOST = 10.0, 10_000
_OBJECTS_ADDED, _UPLOAD_IDLE_S = 10_000, 600.0


class Objects(Protocol):
    """What is asked of the store; `objects.store.ObjectStore` is one."""

    def list_objects(self, prefix: str) -> Iterable[StoredObject]:
        """Every complete object."""

    def list_uploads(self, prefix: str) -> Iterable[Mapping[str, Any]]:
        """What is half-stored, each with its `UploadId`."""

    def give_up_uploads(self, prefix: str, keep: Collection[str] = ()) -> None:
        """Remove what is half-stored, but for the uploads `keep`."""


@dataclass
class _Upload:
    """Parts of an object that is not complete, and when the last one came."""

    bytes: int
    seen_at: float


@dataclass
class _Held:
    """What a prefix holds: as it was listed, and what came since."""

    bytes: int = 0
    objects: int = 0
    listed_at: float = field(default_factory=time.monotonic)
    added_bytes: int = 0
    added_objects: int = 0
    uploads: dict[str, _Upload] = field(default_factory=dict)
    beginning: asyncio.Lock = field(default_factory=asyncio.Lock)


class Quota:
    """What the guests of this node have stored; `threads` are for its looks alone."""

    def __init__(self, store: Objects, threads: Rows, *, bytes_most: int = BYTES_MOST,
                 objects_most: int = OBJECTS_MOST,
                 upload_idle_s: float = _UPLOAD_IDLE_S) -> None:
        self._store, self._threads = store, threads
        self._bytes_most, self._objects_most = bytes_most, objects_most
        self._upload_idle_s = upload_idle_s
        self._held: dict[str, _Held] = {}
        self._looks: dict[str, asyncio.Task[_Held]] = {}

    async def take(self, prefix: str, size_bytes: int, upload_id: str = "") -> None:
        """Count an object, or a part of the upload `upload_id`, that is about to be stored. Raises
        Forbidden where there is no room for it, Unavailable if the store does not answer."""
        held = self._held.get(prefix)
        if held is None or self._is_stale(held, size_bytes):
            held = await self._look(prefix)
        if not self._has_room(held, size_bytes):
            raise Forbidden("This app has stored as much as it may.")
        if not upload_id:
            held.added_bytes += size_bytes
            held.added_objects += 1
            return
        if upload_id not in held.uploads and len(held.uploads) >= _UPLOADS_MOST:
            await self._give_up_idle(prefix, held)
        upload = held.uploads.setdefault(upload_id, _Upload(0, 0.0))
        upload.bytes, upload.seen_at = upload.bytes + size_bytes, time.monotonic()

    @asynccontextmanager
    async def beginning(self, prefix: str) -> AsyncIterator[None]:
        """For the time in which an upload in parts is begun, one of a prefix after another. The
        store is asked each time for those that are open: it knows of those that were begun before
        this process was, and of those that no part came for. Raises Forbidden, Unavailable."""
        held = self._held.get(prefix) or await self._look(prefix)
        async with held.beginning:
            listed = await self._ask(self._store.list_uploads, prefix)
            names = {str(upload["UploadId"]) for upload in listed}
            for name in names - set(held.uploads):
                held.uploads[name] = _Upload(0, time.monotonic())
            for name in set(held.uploads) - names:
                self.upload_ended(prefix, name)
            if len(names) >= _UPLOADS_MOST:
                await self._give_up_idle(prefix, held)
            yield

    def upload_ended(self, prefix: str, upload_id: str) -> None:
        """An upload in parts is complete, or was given up."""
        held = self._held.get(prefix)
        if held is not None:
            upload = held.uploads.pop(upload_id, None)
            held.added_bytes += upload.bytes if upload else 0
            held.added_objects += 1

    def _has_room(self, held: _Held, size_bytes: int) -> bool:
        parts = sum(upload.bytes for upload in held.uploads.values())
        total = held.bytes + held.added_bytes + parts + size_bytes
        return (total <= self._bytes_most
                and held.objects + held.added_objects < self._objects_most)

    def _is_stale(self, held: _Held, size_bytes: int) -> bool:
        if time.monotonic() - held.listed_at < _LOOK_S:
            return False
        return (not self._has_room(held, size_bytes) or held.added_objects > _OBJECTS_ADDED
                or held.added_bytes > self._bytes_most // 8)

    async def _look(self, prefix: str) -> _Held:
        """What the prefix holds now, asked once for all who want it; raises Unavailable."""
        look = self._looks.get(prefix)
        if look is None:
            look = self._looks[prefix] = asyncio.create_task(self._list(prefix))
            look.add_done_callback(lambda done: self._forget(prefix, done))
        return await asyncio.shield(look)

    def _forget(self, prefix: str, look: "asyncio.Task[_Held]") -> None:
        del self._looks[prefix]
        if not look.cancelled():
            look.exception()  # heard of, even if everybody has gone

    async def _list(self, prefix: str) -> _Held:
        before = self._held.get(prefix) or _Held()
        bytes_before, objects_before = before.added_bytes, before.added_objects
        listed = await self._ask(self._sum, prefix)
        if len(self._held) >= _PREFIXES_MOST:
            self._held.clear()
        # What was added since may be in the list or not.
        self._held[prefix] = _Held(
            *listed, added_bytes=before.added_bytes - bytes_before,
            added_objects=before.added_objects - objects_before, uploads=before.uploads,
            beginning=before.beginning)
        return self._held[prefix]

    async def _give_up_idle(self, prefix: str, held: _Held) -> None:
        """Make room for one more upload; raises Forbidden, Unavailable."""
        since = time.monotonic() - self._upload_idle_s
        keep = {name for name, upload in held.uploads.items() if upload.seen_at > since}
        if len(keep) >= _UPLOADS_MOST:
            raise Forbidden("Too much is being stored in parts.")
        await self._ask(self._store.give_up_uploads, prefix, keep)
        for name in set(held.uploads) - keep:
            held.uploads.pop(name, None)

    async def _ask(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """What the store says; raises Unavailable."""
        try:
            return await self._threads.ask(call, *arguments)
        except StoreUnavailable:
            raise Unavailable("The object store does not answer.", retry_after_s=1) from None

    def _sum(self, prefix: str) -> tuple[int, int]:
        total, number = 0, 0
        for stored in self._store.list_objects(prefix):
            total, number = total + stored.size_bytes, number + 1
            if number > self._objects_most:
                break
        return total, number
