"""One WebSocket to the shell host: opens it, says why it was refused, then moves messages without
ever waiting, so that what is shown never waits for what is typed."""
import contextlib
import json
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from websocket import ABNF, WebSocketBadStatusException, WebSocketException
from websocket import create_connection as connect_websocket

from sdk.shell.frames import SUBPROTOCOL

CONNECT_S = 10.0
# opening wakes a sandbox that sleeps
OPEN_S = 150.0
TRY_AGAIN = (502, 503, 504)
NORMAL, GOING_AWAY, NO_CODE, ABNORMAL = 1000, 1001, 1005, 1006


class Refused(Exception):
    """The shell was not opened. `again` says that a later try may succeed."""

    def __init__(self, sentence: str, *, again: bool = False) -> None:
        super().__init__(sentence)
        self.again = again


class Closed(Exception):
    """The connection has ended: close code (1006 if it broke) and reason."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Connection:
    """Opens the shell of a sandbox at `url`; raises Refused."""

    def __init__(self, url: str, sandbox_id: str, api_key: str, ca_file: str) -> None:
        address = f"{url.rstrip('/')}/{quote(os.fsencode(sandbox_id), safe='')}"
        try:
            self._socket = _dial(address, ca_file)
            self._websocket: Any = connect_websocket(
                address, socket=self._socket,
                subprotocols=[SUBPROTOCOL], header={"Authorization": f"Bearer {api_key}"},
                suppress_origin=True,
            )
        except WebSocketBadStatusException as error:
            raise Refused(_sentence(error), again=error.status_code in TRY_AGAIN) from error
        except (OSError, WebSocketException) as error:
            raise Refused(f"{url} cannot be reached: {error}", again=True) from error
        except ValueError as error:  # of a port, of a name that is too long, of a key
            raise Refused(f"{url} cannot be asked: {error}") from error
        self._socket.setblocking(False)
        self._unsent = bytearray()
        self._message = bytearray()

    def fileno(self) -> int:
        """To wait on."""
        return int(self._socket.fileno())

    @property
    def has_unsent(self) -> bool:
        """True while the service does not take what was sent; wait until it is writable."""
        return bool(self._unsent)

    def send(self, message: bytes) -> None:
        """Queue a message, and send what there is room for."""
        self._queue(message, ABNF.OPCODE_BINARY)
        self.flush()

    def flush(self) -> None:
        """Send what there is room for; what went wrong shows when it is read."""
        with contextlib.suppress(OSError):
            while self._unsent:
                del self._unsent[:self._socket.send(self._unsent)]

    def messages(self) -> Iterator[bytes]:
        """Every whole message that has come; raises Closed."""
        try:
            while True:
                frame = self._websocket.recv_frame()
                if frame.opcode == ABNF.OPCODE_CLOSE:
                    raise _closed(frame.data)
                if frame.opcode == ABNF.OPCODE_PING:
                    self._queue(frame.data, ABNF.OPCODE_PONG)
                    self.flush()
                elif frame.opcode != ABNF.OPCODE_PONG:
                    self._message += frame.data
                    if frame.fin:
                        message, self._message = bytes(self._message), bytearray()
                        yield message
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (OSError, WebSocketException) as error:
            raise Closed(ABNORMAL, str(error)) from error

    def close(self) -> None:
        """Say that we leave, and go."""
        self._queue(NORMAL.to_bytes(2, "big"), ABNF.OPCODE_CLOSE)
        self.flush()
        self._websocket.shutdown()

    def _queue(self, content: bytes, opcode: int) -> None:
        self._unsent += ABNF.create_frame(content, opcode).format()


def _dial(url: str, ca_file: str) -> socket.socket:
    """A connection to the host of `url`. Names below localhost are this machine, as RFC 6761 has
    it, whatever the resolver says."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    secure = parts.scheme == "wss"
    target = "localhost" if host.endswith(".localhost") else host
    plain = socket.create_connection((target, parts.port or (443 if secure else 80)), CONNECT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.settimeout(OPEN_S)
    if not secure:
        return plain
    context = ssl.create_default_context(cafile=os.path.abspath(ca_file) if ca_file else None)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def _sentence(error: WebSocketBadStatusException) -> str:
    try:
        said = json.loads(error.resp_body or b"")["error"]
    except (ValueError, KeyError, TypeError):
        said = "it did not say why"
    return f"the service refused ({error.status_code}): {said}"


def _closed(payload: bytes) -> Closed:
    if len(payload) < 2:
        return Closed(NO_CODE)
    return Closed(int.from_bytes(payload[:2], "big"), payload[2:].decode(errors="replace"))
