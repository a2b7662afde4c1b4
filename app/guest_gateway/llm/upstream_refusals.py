"""What a caller is told whom an upstream refuses.

A guest gets the upstream's own words, which its client knows how to read. The API's host has one
shape for all errors, so there the upstream's message goes into that.
"""
import json
import logging

import aiohttp
from aiohttp import web

from app.guest_gateway.answers import refusal
from app.guest_gateway.llm.fall_over import BROKEN_OFF, headers_back

log = logging.getLogger(__name__)
_ERROR_MOST, _MESSAGE_MOST = 1024 * 1024, 500


async def refused(answer: aiohttp.ClientResponse, key: str, *,
                  plain: bool) -> web.StreamResponse:
    """What an upstream refused, with its status and without the operator's `key`; but a refusal of
    that key is ours. `plain` on the API's host."""
    if answer.status in (401, 403) or answer.status < 400:
        log.error("an upstream does not take the operator's key or address: %d", answer.status)
        return refusal(502, "The upstream does not take the operator's key; this is not the"
                       " caller's fault.", plain=plain)
    text = bytearray()
    try:
        async for piece in answer.content.iter_any():
            text += piece
            if len(text) > _ERROR_MOST:
                break
    except BROKEN_OFF as error:
        log.warning("an upstream broke off what it refuses a call with (%s)", type(error).__name__)
        # Nothing of what came: it may end in the middle of the key.
        return _in_our_shape(answer, "The upstream refused the call, and broke off before it had"
                             " said why.", plain=plain)
    if plain:
        return _in_our_shape(answer, message_of(bytes(text), key), plain=True)
    return web.Response(status=answer.status, headers=headers_back(answer),
                        body=bytes(text).replace(key.encode(), b"***"))


def _in_our_shape(answer: aiohttp.ClientResponse, text: str, *, plain: bool) -> web.Response:
    told = refusal(answer.status, text, plain=plain)
    told.headers.update((name, value) for name, value in headers_back(answer).items()
                        if not name.startswith("Content-"))
    return told


def message_of(body: bytes, key: str) -> str:
    """The `message` of an upstream's error, in either protocol, without the operator's `key` and
    cut; a sentence of ours where there is none."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = None
    if not isinstance(message, str) or not message.strip():
        return "The upstream refused the call, and did not say why."
    # Before it is cut, which could leave a part of the key.
    text = message.replace(key, "***")
    return text if len(text) <= _MESSAGE_MOST else f"{text[:_MESSAGE_MOST]}..."
