"""Finds `~.` at the beginning of a line of what is typed, with which a user leaves a shell that
does not answer; `~~` types one tilde. As ssh has it."""

NEW_LINE = b"\r\n"


class Escape:
    """Looks through what is typed, piece by piece."""

    def __init__(self) -> None:
        self._line_begins = True
        self._tilde = False

    def pass_on(self, typed: bytes) -> tuple[bytes, bool]:
        """What of it goes to the shell, and whether the user leaves; what follows a `~.` is
        dropped."""
        passed = bytearray()
        for byte in typed:
            character = bytes([byte])
            if self._tilde:
                self._tilde = False
                if character == b".":
                    return bytes(passed), True
                passed += b"~"
                if character == b"~":
                    self._line_begins = False
                    continue
            elif self._line_begins and character == b"~":
                self._tilde = True
                continue
            passed += character
            self._line_begins = character in NEW_LINE
        return bytes(passed), False
