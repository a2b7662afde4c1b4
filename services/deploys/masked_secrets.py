"""Keeps the secrets of an app out of what it says, before anybody reads that.

A text is cut after that: who reads its end takes `more_bytes` and `more_lines` than are shown, or
the second half of a secret might be at its beginning, where nothing tells that it is one.
"""
import re
from collections.abc import Collection

from config.settings import Settings
from services.deploys import variables

# A value that is shorter is in any text by chance.
_LEAST_CHARACTERS = 6
# Lines of values; each is looked for in the whole text, and so many take tenths of a second.
_LINES_MOST = 2000
# Stands for a byte of a secret; no character in UTF-8 has it.
_COVER = b"\xfe"


class Secrets:
    """The values that are masked, and each line of those that have several."""

    def __init__(self, values: Collection[str]) -> None:
        lines = {line.strip() for value in values for line in value.splitlines()}
        # The longest first, as one may be a part of another.
        pieces = sorted({*values, *sorted(lines, key=len)[-_LINES_MOST:]}, key=len, reverse=True)
        self._pieces = [piece.encode() for piece in pieces if len(piece) >= _LEAST_CHARACTERS]
        self.more_bytes = max(map(len, self._pieces), default=0)
        self.more_lines = max((piece.count(b"\n") for piece in self._pieces), default=0)

    def masked_end(self, said: bytes, most_bytes: int, most_lines: int | None = None) -> str:
        """At most so much of the end of what an app has said, without those of its secrets that
        are long enough."""
        for piece in self._pieces:
            said = said.replace(piece, re.sub(rb"[^\n]", _COVER, piece))
        if most_lines is not None:
            lines = said.split(b"\n")
            said = b"\n".join(lines[-(most_lines + said.endswith(b"\n")):])
        shown = re.sub(_COVER + b"+", b"***", said[-most_bytes:])
        return shown.decode("utf-8", "replace")


def get(settings: Settings, app_id: str) -> Secrets:
    """The secrets that an app has today. Raises Unavailable."""
    return Secrets(variables.list_secrets(settings, app_id))
