"""A program on a terminal of its own, and a person's hands and eyes for it."""
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bin.stack.site import ROOT

_SPAN = 4096


def _as_a_shell_starts_it() -> None:
    """With standard input as its terminal, whose ctrl-C it gets even where those who run the tests
    ignore it, as what is started in the background does."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class ProgramOnTerminal:
    """Use as a context manager; what still runs at its end is killed."""

    def __init__(self, command: Sequence[str | Path], environ: Mapping[str, str], cols: int = 80,
                 rows: int = 24) -> None:
        self._terminal, line = os.openpty()
        self.resize(cols, rows)
        self.usual_modes = termios.tcgetattr(self._terminal)
        self.process = subprocess.Popen(
            command, stdin=line, stdout=line, stderr=line, start_new_session=True, cwd=ROOT,
            env={"PATH": os.environ["PATH"], **environ},
            preexec_fn=_as_a_shell_starts_it,
        )
        os.close(line)
        self.shown = bytearray()

    def __enter__(self) -> "ProgramOnTerminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        os.close(self._terminal)

    def modes(self) -> list:
        return termios.tcgetattr(self._terminal)

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, keys: bytes) -> None:
        remaining = memoryview(keys)
        while remaining:
            remaining = remaining[os.write(self._terminal, remaining):]

    def read_until(self, expected: str, within_s: float = 30.0) -> bytes:
        """What is shown up to a match, which the next call does not see again. A match is looked
        for in what is new and the _SPAN before it."""
        end, pattern, start = time.monotonic() + within_s, re.compile(expected.encode()), 0
        while not (found := pattern.search(self.shown, start)):
            start = max(len(self.shown) - _SPAN, 0)
            assert self._read(end), f"{expected!r} did not come, but {bytes(self.shown[-3000:])!r}"
        seen = bytes(self.shown[:found.end()])
        del self.shown[:found.end()]
        return seen

    def exit_code(self, within_s: float = 30.0) -> int:
        """Its exit code, once it has ended; all it showed is in `shown`."""
        end = time.monotonic() + within_s
        while self._read(end):
            pass
        return self.process.wait(max(end - time.monotonic(), 1))

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], max(end - time.monotonic(), 0))
        try:
            received = os.read(self._terminal, 65536) if ready else b""
        except OSError:  # EIO: it has ended
            return False
        self.shown += received
        return bool(received)
