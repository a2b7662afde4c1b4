"""Turns what a client sends about a shell into checked values."""
import os
from typing import Any, NamedTuple

from ..protocol import (
    BAD_REQUEST,
    DEFAULT_TERM,
    MAX_TERMINAL_SIDE,
    SHELL_SIGNALS,
    ProtocolError,
    Refused,
    decode_json,
)
from ..requests import BASE_ENV, environment, guest_path, integer, text
from .account import Account

MAX_ID_LENGTH = 64


class ShellRequest(NamedTuple):
    """A shell to start. `id` is the client's name for it."""

    id: str
    cwd: str
    env: dict[str, str]
    cols: int
    rows: int


class Resize(NamedTuple):
    """The terminal gets another size."""

    cols: int
    rows: int


class Signal(NamedTuple):
    """The group in the foreground gets a signal; the name has no SIG before it."""

    name: str


def shell_request(request: dict[str, Any], account: Account, adopted_env: dict[str, str],
                  root: str) -> ShellRequest:
    """The shell that is asked for; the request's own env wins over the adopted one."""
    name = text(request, "id", "")
    if len(name) > MAX_ID_LENGTH:
        raise Refused(BAD_REQUEST, f"id has at most {MAX_ID_LENGTH} characters")
    return ShellRequest(
        id=name,
        cwd=_directory(request, account, root),
        env=BASE_ENV | account.environment() | adopted_env | environment(request)
        | {"TERM": text(request, "term", DEFAULT_TERM)},
        cols=integer(request, "cols", 1, MAX_TERMINAL_SIDE),
        rows=integer(request, "rows", 1, MAX_TERMINAL_SIDE),
    )


def control(payload: bytes) -> Resize | Signal:
    """What a CONTROL frame asks for; raises ProtocolError."""
    message = decode_json(payload)
    try:
        if message.get("type") == "resize":
            return Resize(integer(message, "cols", 1, MAX_TERMINAL_SIDE),
                          integer(message, "rows", 1, MAX_TERMINAL_SIDE))
        if message.get("type") == "signal" and text(message, "name") in SHELL_SIGNALS:
            return Signal(message["name"])
    except Refused as refusal:
        raise ProtocolError(refusal.message) from refusal
    raise ProtocolError("there is no such control message")


def _directory(request: dict[str, Any], account: Account, root: str) -> str:
    """Where it starts. Who opens a shell may want to find out why the directory is missing: then it
    is the home, or the root."""
    wanted = guest_path(request, "cwd") if request.get("cwd") else account.home
    places = (wanted, account.home)
    return next((root + place for place in places if os.path.isdir(root + place)), root + "/")
