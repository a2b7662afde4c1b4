"""Lines of the access log are held for a moment and written together: one by itself is formatted
while its client waits, and takes supervisord 0.07 to 0.2 ms to read (docs/decisions/0056).

A process that is killed loses what it held, one that ends writes it first. Each line has the time
of its request.
"""
import contextlib
import logging
import threading
import time
from collections.abc import Iterator

HELD_S, HELD_MOST = 0.2, 1000
# A pipe takes so much as a whole; all processes of a service write to the same one.
PIECE_BYTES = 4096


class HeldLines(logging.StreamHandler):
    """Writes to stderr what it has held for HELD_S, or HELD_MOST lines."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[logging.LogRecord] = []
        self._writing = threading.Lock()
        self._some = threading.Event()
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Hold a record; called with the handler's lock held."""
        self._held.append(record)
        if len(self._held) >= HELD_MOST:
            self.flush()
        if not self._some.is_set():
            self._some.set()
        if self._writer is None:  # not before: gunicorn forks once logging is set up
            self._start_writer()

    def flush(self) -> None:
        """Write what is held; lost if nobody keeps our lines at present, which fails no request."""
        self.acquire()
        try:
            held, self._held = self._held, []
        finally:
            self.release()
        with self._writing, contextlib.suppress(OSError):
            for piece in self._pieces(held):
                self.stream.write(piece)
                self.stream.flush()

    def _start_writer(self) -> None:
        writer = threading.Thread(target=self._write_them, name="held-lines", daemon=True)
        try:
            writer.start()
        except RuntimeError:  # the host has no thread left
            self.flush()
        else:
            self._writer = writer

    def _write_them(self) -> None:
        while True:
            self._some.wait()
            time.sleep(HELD_S)
            self._some.clear()
            self.flush()

    def _pieces(self, records: list[logging.LogRecord]) -> Iterator[str]:
        piece, size_bytes = "", 0
        for record in records:
            line = self.format(record) + self.terminator
            line_bytes = len(line.encode("utf-8", "backslashreplace"))
            if piece and size_bytes + line_bytes > PIECE_BYTES:
                yield piece
                piece, size_bytes = "", 0
            piece, size_bytes = piece + line, size_bytes + line_bytes
        if piece:
            yield piece
