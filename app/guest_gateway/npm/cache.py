"""Serves guests what a registry has, fetched once for all of them.

1. Only GET and HEAD, only packages. 2. What is kept is served from its file: tarballs for ever,
documents for `_DOCUMENT_S`. 3. All who want the same wait for one fetch, which goes on when they
leave. 4. A document that cannot be fetched anew is served as it was.

Guests share the cache, so nothing that one of them sends gets into it, nor on to the registry:
neither headers nor credentials, and what is kept came over a connection whose certificate was
checked against the host's authorities.
"""
import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from app.guest_gateway.npm.allowance import LEAST_BYTES, Allowances
from app.guest_gateway.npm.fetch_places import FETCHES, FetchPlaces
from app.guest_gateway.npm.kept_files import KeptFiles
from app.guest_gateway.npm.owners import Owners
from app.guest_gateway.npm.packages import Wanted, find_wanted, rewrite
from config import guest_gateway
from services.errors import NotFound, ServiceError, Unavailable

log = logging.getLogger(__name__)
Result = TypeVar("Result")
PREFIX = "/npm"
_DOCUMENT_S = 300.0
_DOCUMENT_BYTES, _TARBALL_BYTES = 64 << 20, 512 << 20
_TIMES = aiohttp.ClientTimeout(total=300, sock_connect=10, sock_read=30)
_AWAY = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class RegistryCache:
    """The cache before the registry at an address; made in a running event loop."""

    def __init__(self, registry: str, kept_files: KeptFiles, owners: Owners) -> None:
        self._registry, self._kept, self._owners = registry.rstrip("/"), kept_files, owners
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=FETCHES), cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_TIMES, headers={"User-Agent": "svc-registry-cache"})
        self._fetches: dict[Wanted, asyncio.Task[Path]] = {}
        self._allowances = Allowances()
        self._places = FetchPlaces(self._allowances)
        # Not the loop's threads, which the whole gateway needs: when the cache is full, all fetches
        # wait for the one that makes room.
        self._threads = ThreadPoolExecutor(FETCHES, "npm")
        # One document at a time is held in memory.
        self._rewriting = asyncio.Lock()

    async def close(self) -> None:
        """End every fetch and connection."""
        for task in self._fetches.values():
            task.cancel()
        await self._session.close()

    async def serve(self, request: web.BaseRequest, source: str) -> web.StreamResponse:
        """The answer to a guest at `source`; raises what `services.errors` has for it."""
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        path = request.rel_url.raw_path.removeprefix(PREFIX)
        if path == "/-/ping":
            return web.json_response({})
        wanted = find_wanted(path, request.headers.get("Accept", ""))
        if wanted is None:
            raise NotFound("The registry cache has packages only.")
        found = await asyncio.to_thread(self._kept.find, wanted, _DOCUMENT_S)
        if found is None:
            found = await self._fetched(wanted, source)
        return web.FileResponse(found, headers={"Content-Type": wanted.media_type})

    async def _fetched(self, wanted: Wanted, source: str) -> Path:
        try:
            if wanted not in self._fetches:
                await self._begin(wanted, source)
            return await asyncio.shield(self._fetches[wanted])
        except Unavailable:
            kept = await asyncio.to_thread(self._kept.find, wanted, None)
            if kept is None:
                raise
            return kept

    async def _begin(self, wanted: Wanted, source: str) -> None:
        """Begin a fetch, once there is a place for it; raises as `Owners.find` and
        `FetchPlaces.take`."""
        owner = await self._owners.find(source)
        if wanted in self._fetches:  # of another who asked meanwhile, and needs no second place
            return
        give_back = await self._places.take(source, owner)
        if wanted in self._fetches:  # of another who waited less
            give_back()
            return
        self._allowances.spend(owner, LEAST_BYTES)
        task = asyncio.create_task(self._fetch(wanted, owner))
        self._fetches[wanted] = task
        task.add_done_callback(partial(self._ended, wanted, give_back))

    def _ended(self, wanted: Wanted, give_back: Callable[[], None],
               task: asyncio.Task[Path]) -> None:
        del self._fetches[wanted]
        give_back()
        if not task.cancelled() and (error := task.exception()):
            if not isinstance(error, ServiceError):
                log.error("a package could not be kept", exc_info=error)

    async def _fetch(self, wanted: Wanted, owner: str) -> Path:
        address = URL(f"{self._registry}/{wanted.path}", encoded=True)
        try:
            async with self._session.get(
                    address, headers={"Accept": wanted.accept or "*/*"}) as answer:
                if answer.status >= 500 or answer.status == 429:
                    raise Unavailable(f"The registry answers {answer.status}.", retry_after_s=2)
                if answer.status != 200:
                    raise NotFound(f"The registry answers {answer.status}.")
                draft = await self._off(self._kept.draft)
                try:
                    await self._spool(answer, draft, wanted, owner)
                    if not wanted.is_tarball:
                        async with self._rewriting:
                            await self._off(_move, draft, self._registry)
                    return await self._off(self._kept.put, wanted, draft)
                finally:
                    await self._off(self._kept.drop, draft)
        except _AWAY as error:
            log.warning("the registry cannot be asked (%s)", type(error).__name__)
            raise Unavailable("It cannot be fetched from the registry now.",
                              retry_after_s=2) from error

    async def _spool(self, answer: aiohttp.ClientResponse, draft: IO[bytes], wanted: Wanted,
                     owner: str) -> None:
        most = _TARBALL_BYTES if wanted.is_tarball else _DOCUMENT_BYTES
        fetched = 0
        async for piece in answer.content.iter_any():
            fetched += len(piece)
            self._allowances.spend(owner, len(piece))
            if fetched > most:
                raise NotFound("What the registry has is too large.")
            await self._off(self._kept.write, draft, piece)

    async def _off(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """What a call gives that waits for the disk; each fetch makes one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _move(draft: IO[bytes], registry: str) -> None:
    draft.seek(0)
    moved = rewrite(draft.read(), registry, guest_gateway.URL + PREFIX)
    draft.seek(0)
    draft.truncate()
    draft.write(moved)
