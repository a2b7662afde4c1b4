"""One client connection of the agent: cuts the input into frames, queues the output, and knows when
the peer is gone.

A connection lives through three stages: waiting for its REQUEST (bounded in time and size), serving
it through a session, and ending: the last bytes are sent, the sending side is closed, and the
socket goes once the peer has closed too, so that the reply is not destroyed by a reset. One that
its peer wants to keep waits for the next REQUEST after each RESULT, as it did for the first.

A session that takes input may keep a connection for days, and its peer may rest for as long: there
only the kernel's keepalive decides that the peer is gone.
"""
import select
import socket
from collections.abc import Callable
from typing import Protocol

from .loop import READ, WRITE, Loop
from .protocol import (
    CHUNK_BYTES,
    REQUEST,
    REQUEST_WAIT_S,
    RESULT,
    FrameReader,
    ProtocolError,
    decode_json,
    encode_frame,
    encode_json,
)

STALLED_PEER_S = 60.0
LINGER_S = 2.0
OUTPUT_HIGH_BYTES = 256 * 1024
# Of a connection that takes input: what is under way is what a user still sees after ctrl-C.
SEND_BUFFER_BYTES = 64 * 1024
# Of the socket that listens: the kernel gives them to each connection it accepts.
SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # A clone inherits connections whose peers know nothing of it: a minute of silence settles that.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Session(Protocol):
    """Serves one request on a connection; the connection calls it when something happens."""

    def hang_up(self) -> None:
        """The peer is gone, or broke the protocol; nothing can be sent any more."""

    def output_drained(self) -> None:
        """The peer has taken what was queued; producing may go on."""


class InputSession(Session, Protocol):
    """Serves a request after which the peer goes on sending."""

    def take(self, kind: int, payload: bytes) -> None:
        """The next frame of the peer's; raises ProtocolError to end the connection."""


class Connection:
    """A non-blocking socket with framed input and bounded output, driven by the loop."""

    def __init__(self, loop: Loop, peer: socket.socket, serve: Callable[["Connection", dict], None],
                 on_closed: Callable[["Connection"], None]) -> None:
        peer.setblocking(False)
        self._loop = loop
        self._socket = peer
        self._serve = serve
        self._on_closed = on_closed
        self._reader = FrameReader()
        self._output = bytearray()
        self._session: Session | None = None
        self._input: InputSession | None = None
        self._input_paused = False
        self._gone: select.epoll | None = None
        self._requested = self._kept = self._flushing = self._ending = self._closed = False
        self._timer = loop.call_later(REQUEST_WAIT_S, self.close)
        self._watch()

    @property
    def congested(self) -> bool:
        """True while the peer takes output more slowly than it is produced."""
        return len(self._output) >= OUTPUT_HIGH_BYTES

    def attach(self, session: Session) -> None:
        """Let `session` serve this connection from now on."""
        self._session = session

    def attach_for_input(self, session: InputSession) -> None:
        """Let `session` serve this connection from now on, and take all frames that follow."""
        self._session = self._input = session
        self._kept = False
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        # while input is paused the socket is not read, and so would not tell that the peer is gone
        self._gone = select.epoll()
        self._gone.register(self._socket.fileno(), select.EPOLLRDHUP)
        self._loop.watch(self._gone.fileno(), READ, self.close)

    def pause_input(self, *, paused: bool) -> None:
        """Leave further input to TCP, which holds the peer back, or take it again."""
        if paused != self._input_paused:
            self._input_paused = paused
            self._loop.call_at_end(self._go_on)

    def send(self, kind: int, payload: bytes) -> None:
        """Queue one frame; it leaves at the end of the loop's turn."""
        self._queue(encode_frame(kind, payload))

    def finish(self, kind: int, reply: dict) -> None:
        """Queue the frame that ends the reply, then close once it is sent, unless the connection is
        kept."""
        self._session = self._input = None
        self._input_paused = False  # it is read, and forgotten, until the peer closes
        if self._kept and kind == RESULT:
            self._requested = False
            reply = {**reply, "kept": True}
        else:
            self._ending = True
        self._queue(encode_json(kind, reply))

    def detach(self) -> tuple[socket.socket, bytes]:
        """Give the socket away, with the input that was received beyond the request; the connection
        is over."""
        rest = self._reader.rest()
        self._forget()
        return self._socket, rest

    def close(self) -> None:
        """Drop the connection at once and tell the session, if one is being served."""
        if self._closed:
            return
        self._forget()
        self._socket.close()
        if self._session:
            self._output.clear()  # the session may go on for long, and must not wait for the peer
            self._session.hang_up()

    def _forget(self) -> None:
        self._closed = True
        self._timer.cancel()
        self._loop.unwatch(self._socket.fileno())
        if self._gone:
            self._loop.unwatch(self._gone.fileno())
            self._gone.close()
        self._on_closed(self)

    def _queue(self, frame: bytes) -> None:
        if self._closed:
            return
        self._output += frame
        if not self._flushing:
            self._flushing = True
            self._loop.call_at_end(self._flush)

    def _watch(self) -> None:
        events = 0 if self._input_paused else READ
        if self._output:
            events |= WRITE
        self._loop.watch(self._socket.fileno(), events, self._ready)

    def _go_on(self) -> None:
        if not self._closed:
            self._pass_input_on()
        if not self._closed:
            self._watch()

    def _ready(self) -> None:
        if self._output:
            self._flush()
        if not self._closed and not self._input_paused:
            self._receive()

    def _receive(self) -> None:
        try:
            received = self._socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self.close()
        elif not self._ending:
            self._accept_frames(received)

    def _accept_frames(self, received: bytes) -> None:
        self._reader.feed(received)
        try:
            if not self._requested:
                self._take_request()
            elif not self._input:
                raise ProtocolError("there is more after the request")
            # Nothing may follow a request that is served here and takes no input; one that takes
            # it in a child has been detached by now.
            if self._session and not self._input and self._reader.rest():
                raise ProtocolError("there is more after the request")
        except ProtocolError:
            self.close()
        else:
            self._pass_input_on()

    def _take_request(self) -> None:
        frame = self._reader.next_frame()
        if frame is None:
            return
        kind, payload = frame
        if kind != REQUEST:
            raise ProtocolError("the first frame is not a request")
        self._requested = True
        self._timer.cancel()
        request = decode_json(payload)
        self._kept = request.pop("keep", False) is True
        self._serve(self, request)

    def _pass_input_on(self) -> None:
        try:
            for kind, payload in self._reader.frames() if self._input else ():
                if self._input:
                    self._input.take(kind, payload)
                if self._input_paused or self._closed:
                    return
        except ProtocolError:
            self.close()

    def _flush(self) -> None:
        self._flushing = False
        if self._closed:
            return
        was_congested = self.congested
        try:
            sent = self._socket.send(self._output)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        del self._output[:sent]
        self._watch()
        self._expect_progress()  # and is closed, if the peer is gone meanwhile
        if was_congested and not self.congested and self._session:
            self._session.output_drained()

    def _expect_progress(self) -> None:
        self._timer.cancel()
        # a user may have stopped the output of a shell, and go on tomorrow
        if self._output and not self._gone:
            self._timer = self._loop.call_later(STALLED_PEER_S, self.close)
        elif self._ending and not self._output:
            if not self._gone:
                self._timer = self._loop.call_later(LINGER_S, self.close)
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.close()
        elif not self._requested:
            self._timer = self._loop.call_later(REQUEST_WAIT_S, self.close)
