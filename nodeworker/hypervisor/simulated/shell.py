"""Serve the shell of a simulated guest: a prompt, the commands that it knows, and `exit`.

It echoes as a terminal does, and knows nothing of sizes, signals or programs that run on.
"""
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from guest.agent.protocol import CONTROL, DATA, RESULT, STDOUT, encode_frame, encode_json
from nodeworker.hypervisor.simulated.commands import execute
from nodeworker.hypervisor.simulated.guest import Guest

_PROMPT = b"$ "
_LINE_MAX_BYTES = 4096


def serve_shell(guest: Guest, request: dict[str, Any], frames: Iterator[tuple[int, bytes]],
                send: Callable[[bytes], None]) -> None:
    """Answer what is typed until `exit`, or until the peer hangs up."""
    send(encode_json(CONTROL, {"type": "opened"}) + encode_frame(STDOUT, _PROMPT))
    line = b""
    for kind, payload in frames:
        if kind != DATA:
            continue
        line += payload.replace(b"\r", b"\n")
        send(encode_frame(STDOUT, _shown(payload.replace(b"\r", b"\n"))))
        while b"\n" in line:
            command, _, line = line.partition(b"\n")
            words = _words(command)
            if words[:1] == ["exit"]:
                code = int(words[1]) if words[1:] and words[1].isdecimal() else 0
                send(encode_json(RESULT, {"exitCode": code % 256}))
                return
            send(encode_frame(STDOUT, _shown(_run(guest, request, words)) + _PROMPT))
        line = line[-_LINE_MAX_BYTES:]


def _words(command: bytes) -> list[str]:
    try:
        return shlex.split(command.decode(errors="replace"))
    except ValueError:
        return ["syntax error"]


def _run(guest: Guest, request: dict[str, Any], words: list[str]) -> bytes:
    if not words:
        return b""
    outcome = execute(guest, {"argv": words, "cwd": request.get("cwd")})
    return outcome.stdout + outcome.stderr


def _shown(text: bytes) -> bytes:
    return text.replace(b"\n", b"\r\n")
