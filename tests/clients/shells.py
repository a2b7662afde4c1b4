"""A client of a shell as a browser or a bridge is one: plain WebSocket, frames of svc.shell.v1."""
import base64
import contextlib
import json
import time

import httpx
import websocket

DATA, CONTROL, PING, PONG = range(4)
PROTOCOL = "svc.shell.v1"
HANDSHAKE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode(),
    "Sec-WebSocket-Protocol": PROTOCOL,
}


def url_of(stack, sandbox_id):
    """Of a shell, at the shell process itself."""
    return f"ws://127.0.0.1:{stack.site.values['SVC_SHELL_PORT']}/{sandbox_id}"


def api_url_of(stack, sandbox_id):
    """Of a shell, on the API's own port."""
    return f"{stack.api_url.replace('http', 'ws', 1)}/v1/sandboxes/{sandbox_id}/shell"


def entry(kind, secret):
    """A credential as an entry of Sec-WebSocket-Protocol; `kind` is `api_key` or `jwt`."""
    return f"svc.{kind}.{base64.urlsafe_b64encode(secret.encode()).decode().rstrip('=')}"


def refused(url, headers=None, **more):
    """What is answered to a handshake that is refused."""
    return httpx.get(url.replace("ws", "http", 1), headers={**HANDSHAKE, **(headers or {})},
                     trust_env=False, timeout=30, **more)


class _WebSocket(websocket.WebSocket):
    """Reads all that the server sent before it left, also if that asks for an answer."""

    def pong(self, payload=""):
        with contextlib.suppress(ConnectionError):
            super().pong(payload)

    def send_close(self, *arguments, **options):
        with contextlib.suppress(ConnectionError):
            super().send_close(*arguments, **options)


class ShellClient:
    """An open shell; `close_code` and `reason` are those of the server's Close."""

    def __init__(self, url, headers=None, protocols=(PROTOCOL,), **options):
        self.socket = websocket.create_connection(
            url, header=headers or {}, subprotocols=list(protocols), timeout=30,
            class_=_WebSocket, **options)
        self.seen = bytearray()
        self.controls = []
        self.close_code = self.reason = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, websocket.WebSocketException):
            self.socket.shutdown()

    def send(self, kind, payload=b""):
        self.socket.send_binary(bytes([kind]) + payload)

    def type(self, text):
        self.send(DATA, text.encode())

    def control(self, **message):
        self.send(CONTROL, json.dumps(message).encode())

    def receive(self):
        """The type and the rest of the next frame; None after the server's Close, or the end."""
        try:
            opcode, content = self.socket.recv_data()
        except (websocket.WebSocketConnectionClosedException, ConnectionError):
            return None
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            self.close_code = int.from_bytes(content[:2], "big")
            self.reason = content[2:].decode()
            return None
        assert opcode == websocket.ABNF.OPCODE_BINARY
        return content[0], content[1:]

    def take(self):
        """Take a frame in; False at the end."""
        frame = self.receive()
        if frame is None:
            return False
        kind, payload = frame
        if kind == DATA:
            payload.decode()  # each frame is whole by itself
            self.seen += payload
        elif kind == CONTROL:
            self.controls.append(json.loads(payload))
        return True

    def until(self, text, within_s=30):
        """Read until the terminal shows it; what was shown up to then."""
        end = time.monotonic() + within_s
        while text.encode() not in self.seen:
            assert time.monotonic() < end and self.take(), (text, self.seen[-500:], self.close_code)
        seen, _, self.seen = self.seen.partition(text.encode())
        return seen.decode()

    def to_the_end(self):
        """Read until the server closes; its close code, None if it hung up without one."""
        while self.take():
            pass
        return self.close_code
