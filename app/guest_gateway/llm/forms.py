"""Finds fields of a form with files (multipart/form-data) by their bytes: the files may be large
and are passed on as they came.

A part is taken only if it says its name in the one way in which clients write it. Of any other,
such as a name without quotes or with two, the upstream could read another name than we do, and so
use another model than the one that is paid for.
"""
import re
from collections.abc import Iterable

from services.errors import InvalidRequest

_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_DISPOSITION = b"content-disposition"
_NAME = re.compile(
    rb'\r\ncontent-disposition:[ \t]*form-data;[ \t]*name="([^"\\\r\n]{1,100})"'
    rb'(?:;[ \t]*filename\*?=(?:"[^"\\\r\n]*"|[^"\\;\s]*))*\r\n(?![ \t])', re.IGNORECASE)
_HEAD_BYTES, _PARTS_MOST = 8192, 1000


def boundary_of(content_type: str) -> bytes:
    """What is between the parts; raises InvalidRequest."""
    found = _BOUNDARY.search(content_type)
    if not found:
        raise InvalidRequest("The form does not name its boundary.")
    return b"--" + (found[1] or found[2]).encode("utf-8", "replace")


def find_fields(body: bytes, boundary: bytes, wanted: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Where the values of the wanted fields begin and end; raises InvalidRequest if the form is
    broken or has one of them twice."""
    names, found = set(wanted), dict[str, tuple[int, int]]()
    at = body.find(boundary)
    for _ in range(_PARTS_MOST):
        begin = at + len(boundary)
        if at < 0 or body[begin:begin + 2] == b"--":
            return found
        head_end = body.find(b"\r\n\r\n", begin, begin + _HEAD_BYTES)
        at = body.find(b"\r\n" + boundary, head_end)
        if head_end < 0 or at < 0:
            break
        head = body[begin:head_end + 2]
        match = _NAME.search(head)
        if match is None or head.lower().count(_DISPOSITION) != 1:
            raise InvalidRequest('Each part of the form needs a plain header Content-Disposition:'
                                 ' form-data; name="..."')
        name = match[1].decode("utf-8", "replace")
        if name in found:
            raise InvalidRequest(f"The form has {name} twice.")
        if name in names:
            found[name] = head_end + 4, at
        at += 2
    raise InvalidRequest("The form cannot be read.")
