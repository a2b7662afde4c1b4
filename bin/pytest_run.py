"""One run of pytest as a process of its own, and what it counts in its last line."""
import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from typing import BinaryIO

from bin.stack.site import ROOT

NO_TESTS = 5
_COUNT = re.compile(r"(\d+) (passed|failed|error)")
_LAST_BYTES = 10_000


class PytestRun:
    """A run with these arguments; another thread than the one that waits for it may end it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "--durations=30",
                         *arguments, *os.environ.get("PYTEST_ARGUMENTS", "").split()]
        self._process: "subprocess.Popen[bytes] | None" = None
        self._is_ended = False
        self._lock = threading.Lock()

    def show(self, stream: BinaryIO) -> tuple[int, Counter[str]]:
        """Run it, its output written to `stream` as it comes: its exit code, and the numbers of its
        last line by their words. If this is broken off, so is the run."""
        with self._lock:
            if self._is_ended:
                return NO_TESTS, Counter()
            self._process = subprocess.Popen(self._command, cwd=ROOT, env=_environ(),
                                             stdout=subprocess.PIPE)
        shown = b""
        try:
            assert self._process.stdout
            with self._process.stdout as output:
                while piece := os.read(output.fileno(), 65536):
                    stream.write(piece)
                    stream.flush()
                    shown = (shown + piece)[-_LAST_BYTES:]
        except BaseException:
            self.end()
            raise
        finally:
            code = self._process.wait()
        return code, _count(shown.decode(errors="replace"), code)

    def end(self) -> None:
        """Tell it to end, and what its fixtures have started; one that has not begun never
        does."""
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.terminate()


def _count(shown: str, code: int) -> Counter[str]:
    ends = [line for line in shown.splitlines() if _COUNT.search(line)]
    counted = Counter({word: int(count) for count, word in _COUNT.findall(ends[-1])}
                      if ends else {})
    if code not in (0, NO_TESTS) and not counted["failed"] + counted["error"]:
        counted["error"] = 1  # it broke off
    return counted


def _environ() -> dict[str, str]:
    """This environment, with compiled modules kept under var/, whatever it says of them: else each
    process of each run would compile all the tests anew, which takes longer than to collect
    them."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(ROOT / "var" / "compiled")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ
