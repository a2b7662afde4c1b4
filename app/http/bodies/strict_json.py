"""Parses JSON bodies: within limits on nesting and on the number of values, and without values that
we never accept.

1. `_measure` walks over the text and counts; it builds nothing, so a body of millions of empty
lists costs no memory. 2. The standard parser builds the value. 3. `check_values` looks at each
text and number in it.
"""
import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn

from app.schemas.fields import LARGEST
from services.errors import InvalidRequest

DEPTH_LIMIT = 32
# Texts, lists, objects and commas. The largest sensible body, a batch of 1000 files, has 9000; one
# list of the largest batch of arguments has 8200.
SIGNS_LIMIT = 20_000
_SIGN = re.compile(r'["\[\]{},]')


def parse(raw: bytes | bytearray) -> Any:
    """The value of a JSON text; raises InvalidRequest if it is none or breaks a rule."""
    try:
        text = raw.decode("utf-8")
        _measure(text)
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidRequest("The body is not valid JSON in UTF-8.") from error
    check_values(value)
    return value


def _measure(text: str) -> None:
    """Raise InvalidRequest if `text` is nested too deeply or has too many values, ValueError for a
    broken text in it."""
    depth = signs = position = 0
    while match := _SIGN.search(text, position):
        sign, position = match.group(), match.end()
        signs += 1
        if sign == '"':
            _, position = scanstring(text, position)
        elif sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        if depth > DEPTH_LIMIT:
            raise InvalidRequest(f"The body is nested in more than {DEPTH_LIMIT} levels.")
        if signs > SIGNS_LIMIT:
            raise InvalidRequest("The body has too many values.")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def check_values(value: Any) -> None:
    """Raise InvalidRequest if anything in `value`, at any depth, is a value that we never
    accept."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        else:
            _check_scalar(item)


def _check_scalar(item: Any) -> None:
    if isinstance(item, str):
        # ASCII is the common case and the quick test; a base64 body has megabytes of it.
        if "\0" in item:
            raise InvalidRequest("Texts must not contain NUL characters.")
        if not item.isascii() and any("\ud800" <= sign <= "\udfff" for sign in item):
            raise InvalidRequest("Texts must be valid Unicode.")
    elif isinstance(item, (int, float)) and not -LARGEST <= item <= LARGEST:
        raise InvalidRequest("A number is out of range.")
