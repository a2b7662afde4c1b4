"""For receivers of webhooks: is this request really from the service, and what does it say?
Standard library only.

    event = verify(secret, request.headers, request.body)

`verify` needs the raw bytes of the body: JSON that is parsed and written again has other bytes and
another signature. What it returns comes from the signed body alone; the Id and Type headers are not
signed, so they are not looked at.
"""
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Event", "SignatureError", "signature", "verify"]

TOLERANCE_S = 300
_TIMESTAMP = "x-svc-webhook-timestamp"
_SIGNATURE = "x-svc-webhook-signature"


class SignatureError(Exception):
    """The request is not from the service, or not fresh; answer 400 and do nothing else with it."""


@dataclass(frozen=True)
class Event:
    """One event. Deliveries may come twice (same `id`) and out of order (sort by `occurred_at`, RFC
    3339 in UTC)."""

    id: str
    type: str
    owner_id: str
    occurred_at: str
    data: dict[str, Any]


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """HMAC-SHA256 over the timestamp, a dot and the body, in hex."""
    return hmac.new(secret.encode(),
                    str(timestamp).encode() + b"." + body, hashlib.sha256).hexdigest()


def verify(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: float = TOLERANCE_S,
    now: float | None = None,
) -> Event:
    """The event of a request, once it is sure who sent it; raises SignatureError otherwise.

    Several `secrets` (the old and the new one) and several signatures (`v1=...,v2=...`) make
    rotation smooth: any secret may match any signature. `now` is for tests; the sender's clock and
    ours may differ by `tolerance_s` seconds.
    """
    known = [secrets] if isinstance(secrets, str) else list(secrets)
    if not known or not all(known):
        raise ValueError("verify needs at least one secret, and none may be empty")
    lower = {name.lower(): value for name, value in headers.items()}
    timestamp = _timestamp(lower.get(_TIMESTAMP, ""))
    if abs((time.time() if now is None else now) - timestamp) > tolerance_s:
        raise SignatureError("the timestamp is too far from now")
    given = _signatures(lower.get(_SIGNATURE, ""))
    wanted = [signature(secret, timestamp, body) for secret in known]
    # Every pair is compared, so that the time taken tells nothing about which one matched.
    matches = [
        hmac.compare_digest(one.encode(), other.encode()) for one in given for other in wanted
    ]
    if not any(matches):
        raise SignatureError("no signature matches")
    return _event(body)


def _timestamp(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise SignatureError("there is no valid timestamp header")
    return int(text)


def _signatures(text: str) -> list[str]:
    """The hex parts of `v1=...,v2=...`; what has no version in front is not a signature."""
    parts = [part.strip().partition("=") for part in text.split(",")][:10]
    found = [
        value for version, _, value in parts
        if version[:1] == "v" and version[1:].isdigit() and value
    ]
    if not found:
        raise SignatureError("there is no signature header")
    return found


def _event(body: bytes) -> Event:
    try:
        sent = json.loads(body)
        return Event(sent["id"], sent["type"], sent["ownerId"], sent["occurredAt"], sent["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise SignatureError("the body is signed but not an event") from error
