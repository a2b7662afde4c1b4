"""What the guest gateway says itself.

The clients of both families of model APIs show the `message` of an object `error`; Anthropic's want
its `type` and a `type` beside it, OpenAI's a `code`. So a guest gets all of that, while the API's
host has the one shape of the contract, `{"error": "..."}`.
"""
import json

from aiohttp import web

# By status, the names that both families of clients know.
_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error",
    403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}


def refusal(status: int, text: str, *, retry_after_s: int | None = None,
            plain: bool = False) -> web.Response:
    """An answer with our own error; `plain` is the API host's shape."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    error = {"type": kind, "message": text, "code": kind, "param": None}
    body: object = {"error": text} if plain else {"type": "error", "error": error}
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(status=status, body=json.dumps(body).encode() + b"\n", headers=headers,
                        content_type="application/json")
