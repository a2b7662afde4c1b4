"""Addresses that callers give us: of git repositories, which we only keep, and of callbacks, which
guests will post to.

Neither may hold a credential. What a callback's name resolves to is looked at where it is connected
to, in the guest (`guest/agentserver/callback.py`); here only what is plain already is refused.
"""
import ipaddress
import json
import re
from typing import Any
from urllib.parse import SplitResult, urlsplit

from marshmallow import ValidationError, fields

from app.schemas.fields import Described, Text
from guest.agentserver.addresses import is_public

URL_MAX, BOOTSTRAP_MAX_BYTES, TOKEN_MAX = 2048, 64 * 1024, 4096
_VISIBLE = re.compile(r"[!-~]+")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?")
# The user is required: anything: would otherwise be taken, javascript: for one.
_SCP_HOST = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_SCP_FORM = re.compile(rf"{_SCP_HOST}@{_SCP_HOST}:(?!//)[^:?#@]+")
_GIT_SCHEMES = ("http", "https", "ssh", "git")
# 127.1, 0x7f000001 and 2130706433 are all taken for addresses by what resolves names.
_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]*|\d+")


class GitUrl(Text):
    """The address of a git repository: a URL without password, query and fragment, or
    `user@host:path`."""

    openapi = {"pattern": rf"^(?:(?:https?|ssh|git)://[A-Za-z0-9]|{_SCP_HOST}@{_SCP_HOST}:)[!-~]*$"}

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        text = super()._deserialize(value, attr, data, **options)
        if _SCP_FORM.fullmatch(text) and _VISIBLE.fullmatch(text):
            return text
        parts = _split(text)
        if parts.scheme not in _GIT_SCHEMES or not _HOST.fullmatch(parts.hostname or ""):
            raise ValidationError(
                "must be the http, https, ssh or git address of a repository, or user@host:path")
        if parts.password is not None or (parts.username is not None
                                          and parts.scheme in ("http", "https")):
            raise ValidationError("must not hold credentials")
        if parts.query or parts.fragment:
            raise ValidationError("must not have a query or a fragment")
        return text


class Bootstrap(Described, fields.Field[dict[str, Any]]):
    """What configures the agent server: callback address and token, both or neither, and whatever
    else it may need."""

    openapi = {
        "type": "object",
        "properties": {
            "callbackUrl": {
                "type": "string", "format": "uri", "pattern": "^https?://", "maxLength": URL_MAX
            },
            "callbackToken": {"type": "string", "pattern": "^[!-~]+$", "maxLength": TOKEN_MAX},
            "readinessPort": {"type": "integer", "minimum": 1, "maximum": 65535},
        },
        "dependentRequired": {
            "callbackUrl": ["callbackToken"], "callbackToken": ["callbackUrl"]
        },
        "additionalProperties": True,
    }

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValidationError("must be an object")
        if len(json.dumps(value)) > BOOTSTRAP_MAX_BYTES:
            raise ValidationError(f"must have at most {BOOTSTRAP_MAX_BYTES} bytes as JSON")
        given = {name: _plain_numbers(inner) for name, inner in value.items() if inner is not None}
        if ("callbackUrl" in given) != ("callbackToken" in given):
            raise ValidationError("callbackUrl and callbackToken belong together")
        if "callbackUrl" in given:
            _check_callback_url(given["callbackUrl"])
            _check_callback_token(given["callbackToken"])
        _check_readiness_port(given.get("readinessPort"))
        return given


def _plain_numbers(value: Any) -> Any:
    """`value` with its whole numbers as such: 1.0 is 1, so that who says the one repeats a request
    that said the other. A body has no number beyond 53 bits, so nothing is lost."""
    if isinstance(value, dict):
        return {name: _plain_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_callback_url(url: Any) -> None:
    if not isinstance(url, str) or len(url) > URL_MAX:
        raise ValidationError(f"callbackUrl must be a string of at most {URL_MAX} characters")
    parts = _split(url)
    if parts.scheme not in ("http", "https"):
        raise ValidationError("callbackUrl must be an http or https address")
    if "@" in parts.netloc:
        raise ValidationError("callbackUrl must not hold credentials; callbackToken is sent along")
    if parts.fragment:
        raise ValidationError("callbackUrl must not have a fragment")
    _check_callback_host(parts.hostname or "", bracketed="[" in parts.netloc)


def _check_callback_host(host: str, *, bracketed: bool) -> None:
    last = host.rstrip(".").rpartition(".")[2]
    if bracketed or _NUMBER.fullmatch(last):
        if not is_public(host):
            raise ValidationError(
                "callbackUrl must not lead to a private, local or otherwise special address")
    elif last.lower() == "localhost":
        raise ValidationError("callbackUrl must not lead to the sandbox itself")
    elif not _HOST.fullmatch(host):
        raise ValidationError("callbackUrl has no usable host name")


def _check_callback_token(token: Any) -> None:
    # It goes into a header; and it is never quoted in an error.
    if not isinstance(token, str) or len(token) > TOKEN_MAX or not _VISIBLE.fullmatch(token):
        raise ValidationError(
            f"callbackToken must be 1 to {TOKEN_MAX} visible ASCII characters without spaces")


def _check_readiness_port(port: Any) -> None:
    if port is not None and (isinstance(port, bool) or not isinstance(port, int)
                             or not 1 <= port <= 65535):
        raise ValidationError("readinessPort must be a port number")


def _split(url: str) -> SplitResult:
    """The parts of a URL of visible ASCII; `urlsplit` itself removes what it should complain
    about."""
    if not _VISIBLE.fullmatch(url) or "\\" in url:
        raise ValidationError("must be a URL in visible ASCII characters")
    try:
        parts = urlsplit(url)
        _ = parts.port
        if "[" in parts.netloc:
            ipaddress.IPv6Address(parts.hostname or "")
    except ValueError as error:
        raise ValidationError("is not a possible URL") from error
    return parts
