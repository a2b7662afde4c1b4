"""Reads files of KEY=VALUE lines: a stack's settings and what `make up` tells its users."""
import re
from pathlib import Path

_COMMENT = ("#", ";")
_BACKSLASH = re.compile(r"\\(.)")
_BACKSLASH_IN_QUOTES = re.compile(r'\\(["\\$`])')


def read_env(path: Path) -> dict[str, str]:
    """The values by name; comments, blank lines and a missing file are nothing.

    A value means what it means to systemd, whose units read /etc/svc/service.env themselves; only a
    value of several lines is not understood here.
    """
    if not path.is_file():
        return {}
    pairs = (line.split("=", 1)
             for line in path.read_text().splitlines()
             if "=" in line and not line.lstrip().startswith(_COMMENT))
    return {name.strip(): _value(value.strip()) for name, value in pairs}


def _value(text: str) -> str:
    """What is in quotes, if all of it is; elsewhere a backslash is taken off what it stands
    before."""
    quote = text[:1]
    if quote not in ("'", '"') or len(text) < 2 or text[-1] != quote:
        return _BACKSLASH.sub(r"\1", text)
    inside = text[1:-1]
    return inside if quote == "'" else _BACKSLASH_IN_QUOTES.sub(r"\1", inside)
