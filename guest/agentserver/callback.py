"""One callback to the session that this sandbox serves: `svc-callback TYPE [JSON]` (contract, agent
callbacks).

1. Where to, and with which token, is in the bootstrap file; a sandbox without one posts nothing. 2.
The host is resolved once, and the connection goes to an address that was looked at: a public one.
3. There is one attempt, with 5 seconds for everything, name resolution included; redirects are not
followed and of the answer only its head is read. The exit code says what came of it.
"""
import contextlib
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

from .addresses import is_public

BOOTSTRAP_FILE = "/run/svc-agent/bootstrap.json"
TYPES = ("agent_server_ready", "turn_complete", "errors_notified", "session_reset",
         "steering_queued", "agent_aborted")
LIMIT_S = 5.0
HEAD_MAX_BYTES = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r\n]")
DELIVERED, FAILED, USAGE, NOT_CONFIGURED, REFUSED, TIMED_OUT = range(6)

Outcome = tuple[int, str]


def main(arguments: list[str]) -> int:
    """Command line entry; returns the exit code."""
    try:
        kind, payload = _parse(arguments)
    except ValueError as error:
        print(f"svc-callback: {error}", file=sys.stderr)
        return USAGE
    code, sentence = send(kind, payload, os.environ.get("SVC_AGENT_BOOTSTRAP", BOOTSTRAP_FILE))
    print(f"svc-callback: {sentence}", file=sys.stderr)
    return code


def _parse(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    if not 1 <= len(arguments) <= 2 or arguments[0] not in TYPES:
        raise ValueError(
            "usage: svc-callback TYPE [JSON object, or - to read it]; TYPE is one of"
            f" {', '.join(TYPES)}"
        )
    text = arguments[1] if len(arguments) == 2 else "{}"
    payload = json.loads(sys.stdin.read() if text == "-" else text)
    if not isinstance(payload, dict):
        raise ValueError("the second argument must be a JSON object")
    return arguments[0], payload


def send(kind: str, payload: dict[str, Any], bootstrap_file: str = BOOTSTRAP_FILE) -> Outcome:
    """Post one callback of this sandbox; returns within LIMIT_S with a code and a sentence."""
    try:
        with open(bootstrap_file, encoding="utf-8") as file:
            bootstrap = json.load(file)
    except FileNotFoundError:
        bootstrap = {}
    if "callbackUrl" not in bootstrap:
        return NOT_CONFIGURED, "this sandbox has no callbacks; nothing was sent"
    body = {**payload, "type": kind, "sandboxId": bootstrap.get("sandboxId")}
    return attempt(bootstrap["callbackUrl"], bootstrap["callbackToken"], json.dumps(body).encode())


def attempt(url: str, token: str, body: bytes, *, allowed: Callable[[str], bool] = is_public,
            trusted: "ssl.SSLContext | None" = None, limit_s: float = LIMIT_S) -> Outcome:
    """Try once to POST `body`, and give up after `limit_s` seconds, whatever it is then waiting
    for.

    A thread, because nothing else ends a name resolution that hangs.
    """
    outcomes: list[Outcome] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(_guarded(url, token, body, allowed, trusted, limit_s)),
        daemon=True)
    thread.start()
    thread.join(limit_s)
    return outcomes[0] if outcomes else _timed_out(limit_s)


def _guarded(url: str, token: str, body: bytes, allowed: Callable[[str], bool],
             trusted: "ssl.SSLContext | None", limit_s: float) -> Outcome:
    try:
        return _attempt(url, token, body, allowed, trusted, limit_s)
    except TimeoutError:
        # on a busy machine this comes before the thread is given up
        return _timed_out(limit_s)
    except (OSError, ValueError) as error:
        return FAILED, f"could not be delivered: {error or type(error).__name__}"


def _timed_out(limit_s: float) -> Outcome:
    return TIMED_OUT, f"no answer within {limit_s:g} seconds"


def _attempt(url: str, token: str, body: bytes, allowed: Callable[[str], bool],
             trusted: "ssl.SSLContext | None", limit_s: float) -> Outcome:
    parts = urlsplit(url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    port = parts.port or (443 if secure else 80)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if parts.scheme not in ("http",
                            "https") or not all(allowed(str(address[4][0])) for address in found):
        return REFUSED, "the callback address is not one of the public internet; nothing was sent"
    family, kind, protocol, _, address = found[0]
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(socket.socket(family, kind, protocol))
        link.settimeout(limit_s)
        link.connect(address)
        if secure:
            link = stack.enter_context(_secured(link, host, trusted))
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = (
            f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer"
            f" {token}\r\nContent-Type: application/json\r\nContent-Length:"
            f" {len(body)}\r\nConnection: close\r\n\r\n"
        )
        link.sendall(head.encode("ascii") + body)
        status = _receive_status(link)
    if 200 <= status < 300:
        return DELIVERED, f"delivered ({status})"
    return FAILED, f"the receiver answered {status}"


def _secured(link: socket.socket, host: str, trusted: "ssl.SSLContext | None") -> "ssl.SSLSocket":
    # a good part of a second in an emulated guest, like http.client, which this does without
    import ssl

    return (trusted or ssl.create_default_context()).wrap_socket(link, server_hostname=host)


def _receive_status(link: socket.socket) -> int:
    """The status of the final answer, as soon as its head is there; raises ValueError for what is
    no HTTP."""
    received = b""
    while len(received) < HEAD_MAX_BYTES:
        head, end, rest = received.partition(b"\r\n\r\n")
        if end:
            match = _STATUS.match(head + end)
            if match is None:
                break
            if not match[1].startswith(b"1"):
                return int(match[1])
            received = rest
            continue
        piece = link.recv(4096)
        if not piece:
            break
        received += piece
    raise ValueError("the receiver did not answer in HTTP")
