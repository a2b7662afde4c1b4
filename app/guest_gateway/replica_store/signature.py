"""Reads the signature of an S3 request (AWS Signature Version 4, in the header) and says whether a
secret made it. Pure.

Everything that decides what is done must be signed: method, path, query, host, time, digest of the
body and every `x-amz-` header. A body that is not signed is refused.
"""
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import quote, unquote_to_bytes

from services.errors import Forbidden, InvalidRequest

_ALGORITHM, _SERVICE = "AWS4-HMAC-SHA256", "s3"
_SKEW = timedelta(minutes=15)
_AUTHORIZATION = re.compile(
    _ALGORITHM + r" Credential=(?P<key_id>\w{1,64})/(?P<day>\d{8})/(?P<region>[\w-]{1,32})/"
    + _SERVICE + r"/aws4_request, ?SignedHeaders=(?P<headers>[a-z0-9;-]{1,1000}), ?"
    r"Signature=(?P<signature>[0-9a-f]{64})", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MUST_SIGN = {"host", "x-amz-content-sha256", "x-amz-date"}
_UNRESERVED = "-_.~"


@dataclass(frozen=True)
class Signature:
    """A signature as it came: whose it says it is, what it is made over, the digest of the body."""

    key_id: str
    body_sha256: str
    scope: tuple[str, str, str]
    text: str
    value: str

    def is_by(self, secrets: Iterable[str]) -> bool:
        """True if one of the secrets made it."""
        found = False
        for secret in secrets:
            key = f"AWS4{secret}".encode()
            for part in (*self.scope, "aws4_request"):
                key = _mac(key, part)
            found |= hmac.compare_digest(_mac(key, self.text).hex(), self.value)
        return found


def parse_query(text: str) -> dict[str, str]:
    """The parameters of a query; raises InvalidRequest if one is there twice or is not UTF-8."""
    found: dict[str, str] = {}
    for part in filter(None, text.split("&")):
        name, _, value = part.partition("=")
        decoded = decode(name)
        if decoded in found:
            raise InvalidRequest("A parameter is there twice.")
        found[decoded] = decode(value)
    return found


def decode(text: str) -> str:
    """What a part of a URL says; raises InvalidRequest if that is not UTF-8."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("The address is not UTF-8.") from None


def canonical_query(parameters: dict[str, str]) -> str:
    """Parameters as they are signed, and may be sent."""
    return "&".join(sorted(f"{quote(name, safe=_UNRESERVED)}={quote(value, safe=_UNRESERVED)}"
                           for name, value in parameters.items()))


def canonical_path(path: str) -> str:
    """A decoded path as it is signed, and may be sent."""
    return quote(path, safe=_UNRESERVED + "/")


def read_signature(method: str, path: str, parameters: dict[str, str],
                   headers: Iterable[tuple[str, str]], present: datetime) -> Signature:
    """The signature of a request for a decoded path; raises Forbidden if there is none that could
    be good."""
    lines: dict[str, list[str]] = {}
    for name, value in headers:
        lines.setdefault(name.lower(), []).append(" ".join(value.split()))
    match = _AUTHORIZATION.fullmatch(",".join(lines.get("authorization", ())))
    if not match:
        raise Forbidden("The request is not signed.")
    signed = match["headers"].split(";")
    must = _MUST_SIGN | {name for name in lines if name.startswith("x-amz-")}
    if signed != sorted(set(signed)) or not must <= set(signed) <= set(lines):
        raise Forbidden("The signature leaves something out.")
    sent_at, body_sha256 = lines["x-amz-date"][0], lines["x-amz-content-sha256"][0]
    if abs(_time(sent_at) - present) > _SKEW or not sent_at.startswith(match["day"]):
        raise Forbidden("The request is not of this time.")
    if not _DIGEST.fullmatch(body_sha256):
        raise Forbidden("The body must be signed.")
    request = "\n".join((
        method, canonical_path(path), canonical_query(parameters),
        *(f"{name}:{','.join(lines[name])}" for name in signed), "", match["headers"],
        body_sha256))
    scope = (match["day"], match["region"], _SERVICE)
    text = "\n".join((_ALGORITHM, sent_at, "/".join((*scope, "aws4_request")),
                      hashlib.sha256(request.encode()).hexdigest()))
    return Signature(match["key_id"], body_sha256, scope, text, match["signature"])


def _time(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        raise Forbidden("The request has no time.") from None


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
