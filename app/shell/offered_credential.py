"""The credential of a shell, in any of the four forms that a client may be able to send (contract,
Interactive shell).

`Authorization: Bearer`, the query's `access_token`, and in `Sec-WebSocket-Protocol` beside
svc.shell.v1 an entry `svc.api_key.<base64url>` or `svc.jwt.<base64url>`. Nothing of it is ever
echoed or logged.
"""
import base64
import binascii

from flask import Request

from app.http.credentials import bearer_of
from services.accounts.api_keys import SECRET_PREFIX
from services.errors import Unauthenticated

_KEY_ENTRY, _JWT_ENTRY = "svc.api_key.", "svc.jwt."
_PROTOCOLS = "Sec-WebSocket-Protocol"


def protocols_of(request: Request) -> list[str]:
    """The entries of Sec-WebSocket-Protocol."""
    entries = ",".join(request.headers.getlist(_PROTOCOLS)).split(",")
    return [entry.strip() for entry in entries if entry.strip()]


def secret_of(request: Request) -> str:
    """The credential of a request: the header's, where there is one. Raises Unauthenticated if
    there is none, if one cannot be read, or if two of them are not the same."""
    found = [bearer_of(request)] if "Authorization" in request.headers else []
    found += request.args.getlist("access_token")
    for entry in protocols_of(request):
        if entry.startswith(_KEY_ENTRY):
            found.append(_decoded(entry.removeprefix(_KEY_ENTRY), is_key=True))
        elif entry.startswith(_JWT_ENTRY):
            found.append(_decoded(entry.removeprefix(_JWT_ENTRY), is_key=False))
    if not found:
        return bearer_of(request)
    if any(secret != found[0] for secret in found):
        raise Unauthenticated("The request has two credentials that are not the same.")
    return found[0]


def _decoded(text: str, *, is_key: bool) -> str:
    try:
        secret = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_",
                                  validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise Unauthenticated("The credential in Sec-WebSocket-Protocol is not base64url of"
                              " one.") from error
    if secret.startswith(SECRET_PREFIX) != is_key:
        raise Unauthenticated("svc.api_key is for API keys, svc.jwt for tokens.")
    return secret
