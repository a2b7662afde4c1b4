"""One request of a guest for the object store, from its signature to the last byte of the answer.

1. Whose key is it, and is it asked with from its own sandbox's address? 2. Did its secret sign
this? 3. May a guest of its prefix ask that, and store so much? 4. The body is passed on as it
comes; the last piece only once all of it has the digest that was signed, if the key still counts.
5. So is the answer.
"""
import hashlib
import logging
from asyncio import TimeoutError as Overdue
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from datetime import datetime, timezone
from xml.sax.saxutils import escape

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from app.guest_gateway.replica_store.allowed_requests import AllowedRequest, check_batch, judge
from app.guest_gateway.replica_store.quota import Quota
from app.guest_gateway.replica_store.request_places import RequestPlaces
from app.guest_gateway.replica_store.signature import Signature, decode, parse_query, read_signature
from app.guest_gateway.replica_store.store import Store
from app.guest_gateway.rows import Rows
from app.http.pace import Pace
from config.settings import Settings
from objects.store import ObjectStore
from services.deploys.served.replica_keys import BUCKET, Grant, find_grant
from services.errors import Forbidden, InvalidRequest, ServiceError, TooLarge, Unavailable

log = logging.getLogger(__name__)
ROOM = f"/{BUCKET}"
_SILENCE_S = 30.0
_BACK = {"content-type", "content-length", "content-range", "etag", "last-modified",
         "accept-ranges"}
_CODES = {400: "InvalidRequest", 403: "AccessDenied", 413: "EntityTooLarge", 429: "SlowDown",
          503: "ServiceUnavailable"}


class ReplicaStore:
    """Serves guests."""

    def __init__(self, settings: Settings, rows: Rows) -> None:
        self._settings, self._rows = settings, rows
        self.store = Store(settings)
        self._quota = Quota(ObjectStore(settings), Rows())
        self._places = RequestPlaces()

    async def serve(self, request: web.BaseRequest, source: str) -> web.StreamResponse:
        """The answer to a request below ROOM from the address `source`."""
        try:
            return await self._serve(request, source)
        except ServiceError as error:
            answer = web.Response(
                status=error.status, content_type="application/xml",
                text="" if request.method == "HEAD" else
                f"<Error><Code>{_CODES.get(error.status, 'InternalError')}</Code>"
                f"<Message>{escape(error.text)}</Message></Error>")
            # What is left of a body that was refused is not waited for.
            answer.force_close()
            return answer

    async def _serve(self, request: web.BaseRequest, source: str) -> web.StreamResponse:
        raw_path, _, raw_query = request.raw_path.partition("?")
        path, parameters = decode(raw_path), parse_query(raw_query)
        signature = read_signature(request.method, path, parameters, request.headers.items(),
                                   datetime.now(timezone.utc))
        grant = await self._rows.ask(find_grant, self._settings, source, signature.key_id)
        if not signature.is_by(grant.secrets):
            raise Forbidden("The signature is not right.")
        allowed = judge(request.method, path[len(ROOM):].removeprefix("/"), parameters,
                        request.headers, grant.prefix)
        with self._places.place(source, grant.owner_id):
            return await self._pass_on(request, allowed, grant, signature, source)

    async def _pass_on(self, request: web.BaseRequest, allowed: AllowedRequest, grant: Grant,
                       signature: Signature, source: str) -> web.StreamResponse:
        size_bytes, upload_id = _size(request, allowed), allowed.parameters.get("uploadId", "")
        if allowed.stores:
            await self._quota.take(grant.prefix, size_bytes, upload_id)

        async def still_counts() -> None:
            await self._rows.ask(find_grant, self._settings, source, signature.key_id)

        pieces = _checked(request, signature.body_sha256, still_counts)
        body: bytes | AsyncIterator[bytes] = pieces
        if not allowed.stores:
            body = b"".join([piece async for piece in pieces])
            if allowed.is_batch:
                check_batch(body, grant.prefix)
        begun = self._quota.beginning(grant.prefix) if allowed.begins_upload else nullcontext()
        try:
            async with begun:
                answer = await self.store.send(allowed, body, size_bytes, signature.body_sha256)
        except (aiohttp.ClientError, Overdue, OSError) as error:
            if isinstance(error.__cause__, ServiceError):
                raise error.__cause__ from None
            log.warning("the object store does not answer a guest (%s)", type(error).__name__)
            raise Unavailable("The object store does not answer.", retry_after_s=1) from None
        if upload_id and not allowed.stores and answer.status < 300:
            self._quota.upload_ended(grant.prefix, upload_id)
        try:
            return await _pass_on(request, answer)
        finally:
            answer.close()


def _size(request: web.BaseRequest, allowed: AllowedRequest) -> int:
    """How large the body is to be; raises InvalidRequest, TooLarge."""
    size_bytes = request.content_length
    if size_bytes is None:
        if request.body_exists:
            raise InvalidRequest("The body has no length.")
        size_bytes = 0
    if size_bytes > allowed.body_most_bytes:
        raise TooLarge("The body is too large.")
    return size_bytes


async def _checked(request: web.BaseRequest, body_sha256: str,
                   still_counts: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
    """The body in pieces, the last one only if the digest is right and the key still counts: what
    its prefix held may have been removed meanwhile. Raises InvalidRequest, Forbidden."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    digest, held, pace = hashlib.sha256(), b"", Pace(_SILENCE_S)
    try:
        while piece := await pace.wait(request.content.readany()):
            pace.moved(len(piece))
            digest.update(piece)
            if held:
                yield held
            held = piece
    except Overdue:
        raise InvalidRequest("The body did not come within its time.") from None
    except (web.RequestPayloadError, HttpProcessingError):
        raise InvalidRequest("The body cannot be read.") from None
    if digest.hexdigest() != body_sha256:
        raise InvalidRequest("The body is not the one that was signed.")
    if held:
        await still_counts()
        yield held


async def _pass_on(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """The store's answer, as it comes. What it says of the operator's key is no guest's."""
    if answer.status in (401, 403) or answer.status >= 500 or 300 <= answer.status < 304:
        log.warning("the object store answers a guest %d", answer.status)
        raise Unavailable("The object store does not take this now.", retry_after_s=1)
    headers = {name: value for name, value in answer.headers.items()
               if name.lower() in _BACK or name.lower().startswith("x-amz-meta-")}
    passed = web.StreamResponse(status=answer.status, headers=headers)
    await passed.prepare(request)
    if request.method != "HEAD":
        pace = Pace(_SILENCE_S)
        try:
            async for piece in answer.content.iter_any():
                await pace.wait(passed.write(piece))
                pace.moved(len(piece))
        except (aiohttp.ClientError, Overdue):
            # Without the end of the body, so that half an object is never taken for a whole one.
            request.protocol.force_close()
            return passed
    await passed.write_eof()
    return passed
