"""How a webhook is signed: HMAC-SHA256 over the timestamp, a dot and the very bytes sent (contract,
Platform webhooks)."""
import hashlib
import hmac
from collections.abc import Sequence

from services.events.signing_secrets import Secret

ID_HEADER = "X-Svc-Webhook-Id"
TIMESTAMP_HEADER = "X-Svc-Webhook-Timestamp"
TYPE_HEADER = "X-Svc-Webhook-Type"
SIGNATURE_HEADER = "X-Svc-Webhook-Signature"


def sign(secrets: Sequence[Secret], timestamp: int, body: bytes) -> str:
    """The signature header: `v1=<hex>`, one entry for each secret, `timestamp` in Unix seconds."""
    signed = str(timestamp).encode() + b"." + body
    return ",".join(f"{item.version}={hmac.new(item.key, signed, hashlib.sha256).hexdigest()}"
                    for item in secrets)


def signed_headers(
    secrets: Sequence[Secret], event_id: str, event_type: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """The contract's four headers for one attempt."""
    return {
        ID_HEADER: event_id,
        TIMESTAMP_HEADER: str(timestamp),
        TYPE_HEADER: event_type,
        SIGNATURE_HEADER: sign(secrets, timestamp, body),
    }
