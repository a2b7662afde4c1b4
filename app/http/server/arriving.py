"""One request while its bytes arrive: tells when a thread may take it up without waiting for its
client.

A thread takes a request up when its head is complete and, unless it is an upload, its body too, as
long as that is small. An upload that has not come with its head, and a body above BODY_MAX_BYTES,
is read by a thread: the route first asks for a credential and looks at the announced size.
"""
import enum
import re

HEAD_MAX_BYTES = 64 * 1024
BODY_MAX_BYTES = 64 * 1024
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*0*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked[ \t]*\r\n", re.IGNORECASE)
_CONTINUE = re.compile(rb"\r\nexpect:[ \t]*100-continue[ \t]*\r\n", re.IGNORECASE)
_SIZE_LINE_MAX_BYTES = 1024


class Stage(enum.Enum):
    """How far a request has come."""

    HEAD = "its head is not complete"
    BODY = "its head is complete, its small body is not"
    COMPLETE = "all of it is here"
    STREAMED = "its head is here, a thread reads its body"
    TOO_LARGE = "its head is larger than we read"


class Arriving:
    """The bytes of a request so far, and perhaps of what its client sent after it."""

    def __init__(self, received: bytes = b"") -> None:
        self.received = bytearray()
        self._searched = 0
        self._body_at = self._chunk_at = 0
        self._in_trailer = False
        self._length = 0
        self._chunked = False
        self.wants_continue = False
        self.stage = Stage.HEAD
        self.add(received)

    def add(self, data: bytes) -> None:
        """Take the next bytes; `stage` is then up to date."""
        self.received += data
        if self.stage is Stage.HEAD and self.received.startswith((b"\r", b"\n")):
            self.received = self.received.lstrip(b"\r\n")  # blank lines before a request
            self._searched = 0
        self._look()

    def _look(self) -> None:
        if self.stage is Stage.HEAD:
            end = self.received.find(_END, max(0, self._searched - len(_END)))
            self._searched = len(self.received)
            if end < 0:
                if len(self.received) > HEAD_MAX_BYTES:
                    self.stage = Stage.TOO_LARGE
                return
            self._read_head(end)
        if self.stage is Stage.BODY:
            self._look_at_body()

    def _read_head(self, end: int) -> None:
        head = bytes(self.received[:end + 2])
        self._body_at = self._chunk_at = end + len(_END)
        length = _LENGTH.search(head)
        self._length = int(length[1]) if length else 0
        self._chunked = _CHUNKED.search(head) is not None
        self.wants_continue = _CONTINUE.search(head) is not None
        if not self._chunked and not self._length:
            self.stage = Stage.COMPLETE
        elif self._length > BODY_MAX_BYTES or (head.startswith(b"PUT ") and not self._is_here()):
            self.stage = Stage.STREAMED
        else:
            self.stage = Stage.BODY

    def _look_at_body(self) -> None:
        if self._is_here():
            self.stage = Stage.COMPLETE
        elif len(self.received) - self._body_at > BODY_MAX_BYTES:
            self.stage = Stage.STREAMED

    def _is_here(self) -> bool:
        """Whether all of the body has come."""
        if self._chunked:
            return self._chunks_are_here()
        return len(self.received) - self._body_at >= self._length

    def _chunks_are_here(self) -> bool:
        """Whether the last chunk and its trailer have come. True as well for what is not chunks:
        the parser will say so."""
        while not self._in_trailer:
            end = self.received.find(b"\r\n", self._chunk_at)
            if end < 0:
                return len(self.received) - self._chunk_at > _SIZE_LINE_MAX_BYTES
            try:
                size = int(bytes(self.received[self._chunk_at:end]).split(b";")[0], 16)
            except ValueError:
                return True
            if size < 0:
                return True
            if size == 0:
                self._in_trailer = True
                self._chunk_at = end + 2
            elif (after := end + 2 + size + 2) <= len(self.received):
                self._chunk_at = after
            else:
                return False
        return (self.received.startswith(b"\r\n", self._chunk_at)
                or self.received.find(_END, self._chunk_at) >= 0)
