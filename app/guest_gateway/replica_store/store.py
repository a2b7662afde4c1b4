"""Asks the object store on behalf of a guest, signed anew with the operator's key."""
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from yarl import URL

from app.guest_gateway.replica_store.allowed_requests import AllowedRequest
from app.guest_gateway.replica_store.signature import canonical_path, canonical_query
from config.settings import Settings

_REGION = "us-east-1"
_CONNECT_S, _SILENCE_S = 5.0, 60.0
_READ_BYTES = 256 * 1024
Body = bytes | AsyncIterator[bytes]


class _Signer(S3SigV4Auth):
    """Signs a request whose body is not at hand, only its digest."""

    def payload(self, request: Any) -> str:
        return str(request.context["body_sha256"])


class Store:
    """The connections to the store."""

    def __init__(self, settings: Settings) -> None:
        self._url = f"{settings.s3_url.rstrip('/')}/{settings.s3_bucket}"
        self._signer = _Signer(Credentials(settings.s3_access_key, settings.s3_secret_key), "s3",
                               _REGION)
        ca_file = settings.s3_ca_file
        # True is aiohttp's own, with the authorities of the system, which this process has already.
        tls = ssl.create_default_context(cafile=ca_file) if ca_file else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls, enable_cleanup_closed=False),
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, read_bufsize=_READ_BYTES,
            skip_auto_headers=("User-Agent", "Content-Type"))

    async def close(self) -> None:
        """End every connection."""
        await self._session.close()

    async def send(self, allowed: AllowedRequest, body: Body, size_bytes: int,
                   body_sha256: str) -> aiohttp.ClientResponse:
        """The store's answer, to be read and closed; raises what aiohttp does, and what the body
        raises. A body that breaks off is no object."""
        url = f"{self._url}/{canonical_path(allowed.key)}" if allowed.key else self._url
        if allowed.parameters:
            url = f"{url}?{canonical_query(allowed.parameters)}"
        request = AWSRequest(allowed.method, url, dict(allowed.headers))
        request.context["body_sha256"] = body_sha256
        self._signer.add_auth(request)
        headers = {**dict(request.headers.items()), "Accept-Encoding": "identity"}
        if size_bytes or allowed.method in ("PUT", "POST"):
            headers["Content-Length"] = str(size_bytes)
        return await self._session.request(
            allowed.method, URL(url, encoded=True), headers=headers,
            data=body if size_bytes else None, allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S,
                                          sock_read=_SILENCE_S))
