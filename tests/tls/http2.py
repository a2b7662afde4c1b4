"""A client of HTTP/2 with nothing but what a GET of a small text needs, so that one connection can
ask for several hosts, as a browser does where one certificate is for all of them."""
import socket
import struct

from tests.tls.clients import context_of

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
# Of the static table of RFC 7541: names, and whole fields.
_AUTHORITY, _PATH = 1, 4
_METHOD_GET, _SCHEME_HTTPS, _STATUS_200 = b"\x82", b"\x87", b"\x88"


class Http2:
    """One connection to the edge; use it as a context manager."""

    def __init__(self, stack, host):
        context = context_of(stack)
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", stack.settings.edge_port), timeout=60)
        self._link = context.wrap_socket(plain, server_hostname=host)
        assert self._link.selected_alpn_protocol() == "h2"
        self._frames = self._link.makefile("rb")
        self._stream = -1
        self._link.sendall(_PREFACE + _frame(_SETTINGS, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._frames.close()
        self._link.close()

    def get(self, host, path):
        """The text at `path` of a host; an assertion fails unless its status is 200."""
        self._stream += 2
        self._link.sendall(_frame(
            _HEADERS, _END_STREAM | _END_HEADERS, self._stream,
            _METHOD_GET + _SCHEME_HTTPS + _literal(_PATH, path) + _literal(_AUTHORITY, host)))
        text = b""
        while True:
            kind, flags, stream, payload = self._receive()
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                self._link.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
            if stream != self._stream:
                continue
            assert kind in (_DATA, _HEADERS), f"a frame of type {kind}: {payload!r}"
            if kind == _HEADERS:
                # The first field; before it there may be a change of the table's size.
                assert _STATUS_200 in payload[:2], f"not 200: {payload!r}"
            else:
                text += payload
            if flags & _END_STREAM:
                return text.decode()

    def _receive(self):
        high, low, kind, flags, stream = struct.unpack(">BHBBI", self._frames.read(9))
        return kind, flags, stream, self._frames.read(high << 16 | low)


def _frame(kind, flags, stream, payload=b""):
    return struct.pack(">BHBBI", 0, len(payload), kind, flags, stream) + payload


def _literal(name, value):
    """A header field whose name is in the static table, and which changes no table."""
    return bytes([name, len(value)]) + value.encode()
