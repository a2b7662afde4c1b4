"""A shell host whose shells do what a test tells them: real WebSockets that speak `svc.shell.v1`,
without a service behind them."""
import contextlib
import json
import socket
import threading
from collections.abc import Callable
from http.client import parse_headers
from typing import Any

from simple_websocket import ConnectionClosed, Server

Script = Callable[["Peer"], None] | bytes | threading.Event


class Peer:
    """One open shell, as the service sees it."""

    def __init__(self, websocket: Server, path: str, environ: dict[str, Any]) -> None:
        self.websocket = websocket
        self.path = path
        self.environ = environ

    def show(self, content: bytes) -> None:
        self.websocket.send(b"\0" + content)

    def tell(self, **message: object) -> None:
        self.websocket.send(b"\1" + json.dumps(message).encode())

    def ping(self, content: bytes) -> None:
        self.websocket.send(b"\2" + content)

    def next(self) -> bytes:
        """The next message, with its type."""
        message = self.websocket.receive(20)
        assert isinstance(message, bytes), "nothing came"
        return message

    def typed(self, until: bytes) -> bytes:
        """What is typed up to `until`, whatever else comes between."""
        seen = b""
        while until not in seen:
            message = self.next()
            seen += message[1:] if message[:1] == b"\0" else b""
        return seen

    def exit(self, code: int) -> None:
        self.tell(type="exit", exitCode=code)
        self.websocket.close(1000)


class ShellHost:
    """Serves each connection with the next of `scripts`. A script may also be bytes, an answer that
    refuses, or an event: that is set when a shell is asked for, and nothing is ever answered."""

    def __init__(self, *scripts: Script) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"ws://127.0.0.1:{self._listener.getsockname()[1]}"
        self.failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._serve, args=(scripts,))
        self._thread.start()

    def __enter__(self) -> "ShellHost":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._listener.close()
        assert not self.failures, self.failures

    def _serve(self, scripts: tuple[Script, ...]) -> None:
        for script in scripts:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._play(connection, script)

    def _play(self, connection: socket.socket, script: Script) -> None:
        with connection.makefile("rb") as head:
            path = head.readline().split()[1].decode()
            headers = parse_headers(head)
        if isinstance(script, bytes):
            connection.sendall(script)
            return
        if isinstance(script, threading.Event):
            script.set()
            with contextlib.suppress(ConnectionResetError):
                connection.recv(1)  # until the peer has gone
            return
        environ = {f"HTTP_{name.upper().replace('-', '_')}": value
                   for name, value in headers.items()}
        environ |= {"REQUEST_METHOD": "GET", "PATH_INFO": path}
        websocket = Server(environ | {"werkzeug.socket": connection},
                           subprotocols=["svc.shell.v1"])
        try:
            script(Peer(websocket, path, environ))
        except ConnectionClosed:
            pass
        except BaseException as failure:
            self.failures.append(failure)
        finally:
            with contextlib.suppress(ConnectionClosed):
                websocket.close()
            websocket.thread.join(10)  # until the peer has closed, too
