"""One request to a model, from its head to the last byte of its answer.

1. The caller's place, then the body, whole. 2. The rules: may it be, where to. 3. The upstreams.
4. The answer as it comes, read for its usage on the way; a caller who takes nothing holds the
upstream, one who leaves ends it. 5. The end in the row of the call, however it came.

Nothing that a prompt or an answer says is written anywhere.
"""
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web

from app.guest_gateway.connections import is_one_request
from app.guest_gateway.llm.calls import Call, Calls
from app.guest_gateway.llm.endpoints import Body, Endpoint, find_endpoint
from app.guest_gateway.llm.fall_over import BROKEN_OFF, Upstreams, headers_back
from app.guest_gateway.llm.model_list import model_list
from app.guest_gateway.llm.request_body import Asked, Room, all_rooms, read_body, understand
from app.guest_gateway.llm.upstream_refusals import refused
from app.guest_gateway.llm.usage_stream import StreamedUsage, UnseenUsage, WholeUsage
from app.http.owner_shares import Places
from services.errors import RateLimited, Unavailable
from services.llm.call_rows import Ending
from services.llm.callers import LlmCaller
from services.llm.configured.upstreams import LlmConfig

log = logging.getLogger(__name__)
REQUESTS, OF_ONE_OWNER, OF_ONE_CALLER = 2000, 1000, 64
Reader = StreamedUsage | WholeUsage | UnseenUsage


class LlmProxy:
    """Serves callers that are known."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.upstreams = Upstreams()
        self._places = Places(REQUESTS, OF_ONE_OWNER)
        self._of_caller = Places(REQUESTS, OF_ONE_CALLER)
        self._rooms = all_rooms()

    async def serve(self, request: web.BaseRequest, path: str, config: LlmConfig,
                    caller: LlmCaller, *, plain: bool) -> web.StreamResponse:
        """The answer to a request of `caller` for `path`; `plain` on the API's host. Raises what
        `services.errors` has for it."""
        endpoint = find_endpoint(request.method, path,
                                 is_anthropic="Anthropic-Version" in request.headers)
        if endpoint.body is Body.NONE:
            if (listed := model_list(config, None if plain else endpoint.protocol,
                                     endpoint.path)) is not None:
                return web.json_response(listed)
        with self._place(caller):
            room = Room(self._rooms, caller.owner_id)
            try:
                body = await read_body(request, room)
                asked = await understand(endpoint, body, request.headers.get("Content-Type", ""))
                del body
                return await self._call(request, config, caller, endpoint, asked, room,
                                        plain=plain)
            finally:
                room.close()

    @contextmanager
    def _place(self, caller: LlmCaller) -> Iterator[None]:
        name = caller.sandbox_id or caller.owner_id
        of_caller = RateLimited(f"More than {OF_ONE_CALLER} requests at a time.", retry_after_s=2)
        of_owner = Unavailable("Too many requests at once; try again in a moment.",
                               retry_after_s=2)
        with (self._of_caller.held(name, of_caller),
              self._places.held(caller.owner_id, of_owner)):
            yield

    async def _call(self, request: web.BaseRequest, config: LlmConfig, caller: LlmCaller,
                    endpoint: Endpoint, asked: Asked, room: Room, *,
                    plain: bool) -> web.StreamResponse:
        call = await self._calls.begin(config, caller, endpoint, asked,
                                       self.upstreams.resting.names())
        query = f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else ""
        ending = None
        try:
            async with self.upstreams.ask(config, call.targets, endpoint, asked, request.headers,
                                          query) as (target, answer):
                drops_usage = asked.adds_usage
                asked.forget()
                room.close()
                call.target, call.status = target, answer.status
                if answer.status >= 300:
                    return await refused(answer, target.upstream.key, plain=plain)
                reader = _reader(answer, endpoint, call.reserved_output, drops_usage=drops_usage)
                call.counted = reader.counted
                return await _pass_on(request, answer, reader, call)
        except Unavailable:
            ending = Ending(call.targets[-1], None)
            raise
        finally:
            self._calls.end(call, ending)


def _reader(answer: aiohttp.ClientResponse, endpoint: Endpoint, reserved_output: int, *,
            drops_usage: bool) -> Reader:
    kind = answer.content_type
    if kind == "text/event-stream":
        return StreamedUsage(endpoint.protocol, reserved_output, drops_usage=drops_usage)
    if kind == "application/json":
        return WholeUsage(endpoint.protocol, reserved_output)
    return UnseenUsage()


async def _pass_on(request: web.BaseRequest, answer: aiohttp.ClientResponse, reader: Reader,
                   call: Call) -> web.StreamResponse:
    headers = {**headers_back(answer), "X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    response = web.StreamResponse(status=answer.status, headers=headers)
    if is_one_request(request):
        response.force_close()
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        async for piece in answer.content.iter_any():
            call.began()
            if passed := reader.feed(piece):
                await response.write(passed)
        if rest := reader.rest():
            await response.write(rest)
    except BROKEN_OFF as error:
        log.warning("an upstream broke its answer off (%s)", type(error).__name__,
                    extra={"upstream": call.target.upstream.name})
        passed = reader.feed(_unread(answer.content))
        reader.counted.complete = False
        if passed:
            call.began()
            await response.write(passed)
        # Without the end of the body, so that the caller sees that it is broken.
        request.protocol.force_close()
    return response


def _unread(content: aiohttp.StreamReader) -> bytes:
    """What had come before the end of a broken answer: aiohttp says that it broke before it gives
    the rest, if both came at once."""
    content.set_exception(None)  # type: ignore[arg-type]
    return content.read_nowait()
