"""Asks the upstreams, one after another until one answers.

The next is tried only while nothing of an answer was passed on: when an upstream cannot be reached,
or answers with a status of the configuration's `fallOver`. What the last of them said is passed on
as it is. A call is made once more at the same upstream if a connection that was kept is found
closed, because that says nothing of the upstream.
"""
import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from app.guest_gateway.llm.endpoints import Body, Endpoint
from app.guest_gateway.llm.request_body import Asked, sliced
from services.errors import Unavailable
from services.llm.configured.upstreams import LlmConfig, Target
from services.llm.routing import RestingUpstreams

log = logging.getLogger(__name__)
# Of a request: nothing else of what a guest sends as headers goes on.
_ON = ("Accept", "Anthropic-Version", "Anthropic-Beta", "OpenAI-Beta", "Idempotency-Key")
# Of an answer: neither the operator's organisation nor how much of its limits is left.
_BACK = ("Content-Type", "Content-Encoding", "Retry-After", "Retry-After-Ms", "X-Should-Retry",
         "Request-Id", "X-Request-Id", "OpenAI-Processing-Ms")
_HEAD_BYTES, _READ_BYTES = 64 * 1024, 64 * 1024
_KEPT_S = 15.0
RETRY_AFTER_S = 2


class Upstreams:
    """The connections to all upstreams, and which of them have just failed."""

    def __init__(self) -> None:
        self.resting = RestingUpstreams()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_S,
                                           enable_cleanup_closed=False),
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
            read_bufsize=_READ_BYTES, max_line_size=_HEAD_BYTES, max_field_size=_HEAD_BYTES,
            headers={"User-Agent": "svc-llm-proxy", "Accept-Encoding": "identity"})

    async def close(self) -> None:
        """End every connection."""
        await self._session.close()

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
        try:
            return await self._send(target, endpoint, asked, headers, query)
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            return await self._send(target, endpoint, asked, headers, query)

    async def _send(self, target: Target, endpoint: Endpoint, asked: Asked,
                    headers: Mapping[str, str], query: str) -> aiohttp.ClientResponse:
        upstream = target.upstream
        sent = {name: headers[name] for name in _ON if name in headers}
        sent |= upstream.key_headers()
        data = None
        if endpoint.body is not Body.NONE:
            pieces = asked.pieces(target.model)
            sent |= {"Content-Type": asked.content_type,
                     "Content-Length": str(sum(map(len, pieces)))}
            data = sliced(pieces)
        return await self._session.request(
            "GET" if data is None else "POST",
            URL(f"{upstream.url}{endpoint.path}{query}", encoded=True),
            headers=sent, data=data, allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=upstream.connect_s,
                                          sock_connect=upstream.connect_s,
                                          sock_read=upstream.silence_s))


def headers_back(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """The headers of an answer that go on to the caller."""
    return {name: answer.headers[name] for name in _BACK if name in answer.headers}
