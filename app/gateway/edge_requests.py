"""Reads what the edge sends first: a look-up, or the head of a request that it passed on whole.

A look-up is a line `LOOKUP <host>`, and a worker of the edge that wants to be told where apps are
says `EDGE <its process>`. No client can make the edge send these: the first line of a request that
it passes on ends with the version of HTTP.
"""
import asyncio
from dataclasses import dataclass

# The edge takes no longer heads.
HEAD_BYTES = 256 * 1024
_LOOKUP, _EDGE, _HTTP = b"LOOKUP ", b"EDGE ", b" HTTP/1."
_HOST_HEADER, _APP_HEADER, _ACCEPT_HEADER = b"x-edge-host", b"x-edge-app", b"accept"


class TooLong(Exception):
    """The head has more than HEAD_BYTES bytes."""


@dataclass(frozen=True)
class Lookup:
    """The edge asks where a host leads."""

    label: str


@dataclass(frozen=True)
class EdgeWorker:
    """A worker of the edge wants to be told where apps are."""

    pid: str


@dataclass(frozen=True)
class Head:
    """A request: its bytes so far, the label of its host or the name of the app, and how an answer
    of ours has to look."""

    text: bytes
    label: str
    app: str
    is_head: bool
    wants_json: bool


async def read_first(reader: asyncio.StreamReader) -> Lookup | EdgeWorker | Head | None:
    """What comes next; None if the edge has closed the connection. Raises TooLong."""
    line = await _line(reader)
    if not line:
        return None
    if line.startswith(_LOOKUP) and _HTTP not in line:
        return Lookup(_label(line[len(_LOOKUP):]))
    if line.startswith(_EDGE) and _HTTP not in line:
        return EdgeWorker(_text(line[len(_EDGE):]))
    lines, total = [line], len(line)
    while lines[-1] not in (b"\r\n", b"\n", b""):
        lines.append(await _line(reader))
        total += len(lines[-1])
        if total > HEAD_BYTES:
            raise TooLong
    headers = dict(_split(each) for each in lines[1:-1])
    wants_json = _prefers_json(headers.get(_ACCEPT_HEADER, b""))
    return Head(b"".join(lines), _label(headers.get(_HOST_HEADER, b"")),
                _text(headers.get(_APP_HEADER, b"")), line.startswith(b"HEAD "), wants_json)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        return b""
    except asyncio.LimitOverrunError as error:
        raise TooLong from error


def _split(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.strip().lower(), value.strip()


def _label(host: bytes) -> str:
    return _text(host.partition(b".")[0])


def _text(value: bytes) -> str:
    return value.strip().decode("ascii", "replace").lower()


def _prefers_json(accept: bytes) -> bool:
    """Browsers name text/html; a program that names JSON and not that gets JSON."""
    accept = accept.lower()
    return b"json" in accept and b"text/html" not in accept
