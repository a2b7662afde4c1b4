"""The WebSocket of a shell: flask-sock's, with bounded memory both ways and an orderly end.

Its own thread reads. 1. Each message goes straight to whoever takes it, and nothing is read
meanwhile: TCP holds a client back that sends more than its guest reads. No message is larger than
MESSAGE_BYTES, and none is compressed. 2. Whoever sends holds a lock, and sends all of it. 3. A
client that reads nothing for SEND_S has left; so has one of which nothing comes for twice PING_S,
pings in between. 4. After our Close what still comes is read and dropped until the client closes,
so that it sees the Close.
"""
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import flask_sock
from simple_websocket import ConnectionClosed, Server
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from app.shell.frames import MESSAGE_BYTES, SUBPROTOCOL
from app.shell.limits import PING_S, SEND_S

_CLOSING_S = 2.0
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0)),
    (socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PING_S, 0)),
    # For a client that vanishes while nothing is read from it.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_REQUEST = ("GET / HTTP/1.1\r\nHost: shell\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n"
            "Sec-WebSocket-Key: {}\r\n\r\n")

Take = Callable[[bytes], None]
Refuse = Callable[[int, str], None]


def install() -> None:
    """Make flask-sock's routes use it; flask-sock has no setting for this."""
    flask_sock.Server = ShellSocket


class ShellSocket(Server):
    """See the module. `listen` comes first, `close` last, both from the thread of the request."""

    def __init__(self, environ: dict[str, Any], **options: Any) -> None:
        self._lock = threading.Lock()
        self._listened = threading.Event()
        self._message = bytearray()
        self._quiet = self._closing = False
        super().__init__(environ, [SUBPROTOCOL], **options)

    def listen(self, take: Take, refuse: Refuse, left: Callable[[], None]) -> None:
        """From now on call `take` with each message, `refuse` with a close code and its reason for
        what is none, and `left` when the client is gone; all from the thread that reads."""
        self._take, self._refuse, self._left = take, refuse, left
        self._listened.set()

    def send(self, data: bytes) -> None:
        """Send a binary message, from any thread; waits for as long as the client reads something.
        Raises ConnectionClosed."""
        if not self._put(BytesMessage(data=data)):
            raise ConnectionClosed()

    def ping(self) -> None:
        """Send a ping if that takes no time; to be called every PING_S. A client that was closed
        while nothing is read from it answers with a reset, and only to this."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self.sock.send(self.ws.send(Ping()), socket.MSG_DONTWAIT)
        except (OSError, LocalProtocolError):
            pass  # there is no room, or it has ended
        finally:
            self._lock.release()

    def close(self, reason: int | None = None, message: str | None = None) -> None:
        """Close with this code, if the client is there, and return once it has closed too or did
        not do so in time."""
        self._closing = True
        if self._put(CloseConnection(code=reason or CloseReason.NORMAL_CLOSURE, reason=message)):
            self.thread.join(_CLOSING_S)
        self.break_off()
        self.thread.join()

    def break_off(self) -> None:
        """End the connection without a word, from any thread."""
        self.connected = False
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended

    def handshake(self) -> None:
        """Answer 101; without compression, which would let a few bytes become a large message."""
        # The rest of the request was checked, and holds a credential: it comes no further.
        self.ws.receive_data(_REQUEST.format(self.environ["HTTP_SEC_WEBSOCKET_KEY"]).encode())
        assert isinstance(next(self.ws.events()), Request)
        self.sock.settimeout(None)
        for option in _SOCKET_OPTIONS:
            self.sock.setsockopt(*option)
        self.connected = self._put(AcceptConnection(subprotocol=SUBPROTOCOL))

    def _put(self, event: Event) -> bool:
        """Send an event as a whole; False if it cannot be, and then nothing ever will be."""
        try:
            with self._lock:
                self.sock.sendall(self.ws.send(event))
            return True
        except LocalProtocolError:
            return False  # a Close has been sent
        except OSError:
            self.break_off()
            return False

    def _thread(self) -> None:
        self._listened.wait()
        try:
            while self._read():
                pass
        finally:
            self._left()

    def _read(self) -> bool:
        try:
            received = self.sock.recv(self.receive_bytes)
        except BlockingIOError:  # PING_S without a byte
            was_quiet, self._quiet = self._quiet, True
            return not was_quiet
        except OSError:
            return False
        self._quiet = False
        try:
            with self._lock:
                self.ws.receive_data(received or None)
            return bool(received) and all(map(self._handle, self.ws.events()))
        except (LocalProtocolError, RemoteProtocolError):
            return False

    def _handle(self, event: Event) -> bool:
        """False at the end."""
        if isinstance(event, CloseConnection):
            self._put(event.response())
            return False
        if isinstance(event, Ping):
            return self._put(event.response())
        if isinstance(event, TextMessage):
            self._refuse_once(CloseReason.UNSUPPORTED_DATA, "messages are binary")
        elif isinstance(event, BytesMessage) and not self._closing:
            self._message += event.data
            if len(self._message) > MESSAGE_BYTES:
                self._refuse_once(CloseReason.MESSAGE_TOO_BIG, "a message has at most 64 KiB")
            elif event.message_finished:
                message, self._message = bytes(self._message), bytearray()
                self._take(message)
        return True

    def _refuse_once(self, code: int, reason: str) -> None:
        if not self._closing:
            self._closing = True
            self._refuse(code, reason)
