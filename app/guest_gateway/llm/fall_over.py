"""Asks the upstreams, one after another until one answers.

The next is tried only while nothing of an answer was passed on: when an upstream cannot be reached,
or answers with a status of the configuration's `fallOver`. What the last of them said is passed on
as it is. A call is made once more at the same upstream, on a connection of its own, if one that was
kept is found closed, because that says nothing of the upstream.
"""
import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from app.guest_gateway.llm.endpoints import Body, Endpoint
from app.guest_gateway.llm.request_body import Asked
from app.guest_gateway.llm.sending import Sending
from services.errors import Unavailable
from services.llm.configured.upstreams import LlmConfig, Target
from services.llm.routing import RestingUpstreams

log = logging.getLogger(__name__)
# Of a request: nothing else of what a guest sends as headers goes on. An `Idempotency-Key` would be
# one of the operator's account, so that two tenants with the same one could get one answer.
_ON = ("Accept", "Anthropic-Version", "Anthropic-Beta", "OpenAI-Beta")
# Of an answer: neither the operator's organisation nor how much of its limits is left.
_BACK = ("Content-Type", "Content-Encoding", "Retry-After", "Retry-After-Ms", "X-Should-Retry",
         "Request-Id", "X-Request-Id", "OpenAI-Processing-Ms")
_HEAD_BYTES, _READ_BYTES = 64 * 1024, 64 * 1024
_KEPT_S = 15.0
RETRY_AFTER_S = 2
# What reading an answer raises whose upstream ends it early, or says nothing more.
BROKEN_OFF = (aiohttp.ClientPayloadError, aiohttp.ServerTimeoutError, aiohttp.ClientOSError,
              asyncio.TimeoutError)


class Upstreams:
    """The connections to all upstreams, and which of them have just failed."""

    def __init__(self) -> None:
        self.resting = RestingUpstreams()
        self._keeping = _session(keepalive_timeout=_KEPT_S)
        self._afresh = _session(force_close=True)

    async def close(self) -> None:
        """End every connection."""
        await self._keeping.close()
        await self._afresh.close()

    @asynccontextmanager
    async def ask(self, config: LlmConfig, targets: Sequence[Target], endpoint: Endpoint,
                  asked: Asked, headers: Mapping[str, str],
                  query: str) -> AsyncIterator[tuple[Target, aiohttp.ClientResponse]]:
        """The answer of the first upstream that gives one, and whose it is, in the block; at its
        end the call upstream is over, read or not. Raises Unavailable if none can be reached."""
        statuses, rest_s = config.fall_over.statuses, config.fall_over.rest_s
        for number, target in enumerate(targets, 1):
            is_last, name = number == len(targets), target.upstream.name
            try:
                answer = await self._ask_one(target, endpoint, asked, headers, query)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
                self.resting.failed(name, rest_s)
                log.warning("an upstream does not answer (%s)", type(error).__name__,
                            extra={"upstream": name})
                continue
            try:
                if answer.status not in statuses:
                    self.resting.answered(name)
                else:
                    self.resting.failed(name, rest_s)
                    log.warning("an upstream answers %d", answer.status, extra={"upstream": name})
                    if not is_last:
                        continue
                yield target, answer
                return
            finally:
                answer.close()
        raise Unavailable("No upstream of the LLM proxy answers; try again in a moment.",
                          retry_after_s=RETRY_AFTER_S)

    async def _ask_one(self, target: Target, endpoint: Endpoint, asked: Asked,
                       headers: Mapping[str, str], query: str) -> aiohttp.ClientResponse:
        way = _Way()
        try:
            return await _send(self._keeping, way, target, endpoint, asked, headers, query)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError):
            if not way.was_kept:
                raise
        # Not on another that was kept: what has closed one has closed them all.
        return await _send(self._afresh, way, target, endpoint, asked, headers, query)


@dataclass
class _Way:
    """Whether a request went over a connection that had been kept."""

    was_kept: bool = False


async def _note_kept(session: aiohttp.ClientSession, context: SimpleNamespace,
                     _: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx.was_kept = True


def _session(**of_connections: Any) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_note_kept)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, enable_cleanup_closed=False, **of_connections),
        cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trace_configs=[trace],
        read_bufsize=_READ_BYTES, max_line_size=_HEAD_BYTES, max_field_size=_HEAD_BYTES,
        headers={"User-Agent": "svc-llm-proxy", "Accept-Encoding": "identity"})


async def _send(session: aiohttp.ClientSession, way: _Way, target: Target, endpoint: Endpoint,
                asked: Asked, headers: Mapping[str, str], query: str) -> aiohttp.ClientResponse:
    upstream = target.upstream
    sent = {name: headers[name] for name in _ON if name in headers} | upstream.key_headers()
    url = URL(f"{upstream.url}{endpoint.path}{query}", encoded=True)
    limits = aiohttp.ClientTimeout(total=None, connect=upstream.connect_s,
                                   sock_connect=upstream.connect_s, sock_read=upstream.silence_s)
    if endpoint.body is Body.NONE:
        return await session.get(url, headers=sent, allow_redirects=False, timeout=limits,
                                 trace_request_ctx=way)
    body = Sending(asked.pieces(target.model), upstream.silence_s)
    sent |= {"Content-Type": asked.content_type, "Content-Length": str(body.size_bytes)}
    return await body.watch(session.post(url, headers=sent, data=body,
                                         allow_redirects=False, timeout=limits,
                                         trace_request_ctx=way))


def headers_back(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """The headers of an answer that go on to the caller."""
    return {name: answer.headers[name] for name in _BACK if name in answer.headers}
