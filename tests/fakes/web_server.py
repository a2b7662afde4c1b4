"""A web server of a tenant, with the standard library alone so that guests can run it too:
`python3 web_server.py PORT`.

It counts what it is sent, echoes over a WebSocket, streams events, and knows whether it is the one
that answered before: `/nonce` is random and only in its memory.
"""
import base64
import collections
import hashlib
import json
import secrets
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAGE = b"""<!doctype html><title>A preview</title>
<style>body { font: 20px/1.6 system-ui, sans-serif; margin: 2em; color: #234 }
h1 { color: #063 } code, b { color: #063; background: #eef6f2; padding: 0 .3em }</style>
<h1>Hello from the sandbox</h1>
<p>The machine is <code>HOSTNAME</code>, its address
<code id=address>...</code></p>
<p>WebSocket: <b id=socket>...</b></p><p>Events: <b id=events>...</b></p>
<script>
document.getElementById("address").textContent = location.protocol + "//" +
  location.host.slice(0, 4) + "..." + location.host.slice(location.host.indexOf("-"));
const socket = new WebSocket(location.origin.replace("http", "ws") + "/socket");
socket.onopen = () => socket.send("over the socket");
socket.onmessage = (message) => document.getElementById("socket").textContent = message.data;
const events = new EventSource("/events"), seen = [];
events.onmessage = (event) => {
  seen.push(event.data);
  document.getElementById("events").textContent = seen.join(" ");
  if (seen.length === 3) events.close();
};
</script>""".replace(b"HOSTNAME", socket.gethostname().encode())
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PIECE = 65536


class WebServer(ThreadingHTTPServer):
    """Serves until it is told to shut down; `counts` says how often each `id` was posted, or asked
    for slowly."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port, host="0.0.0.0"):
        super().__init__((host, port), _Handler)
        self.counts = collections.Counter()
        self.nonce = secrets.token_hex(8)
        self.lock = threading.Lock()
        self.go_on = threading.Event()

    def handle_error(self, request, client_address):
        """Clients that go away are no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        name = urlsplit(self.path).path
        # of HTTP, as its answer has it
        self.protocol_version = query.get("version", self.protocol_version)
        if name.startswith("/guarded/"):
            if not self._knows_its_name():
                return
            name = name.removeprefix("/guarded")
        if name == "/":
            self._send(PAGE, "text/html")
        elif name == "/nonce":
            self._send(self.server.nonce.encode())
        elif name == "/headers":
            self._send(json.dumps(dict(self.headers.items())).encode(), "application/json")
        elif name == "/count":
            self._send(str(self.server.counts[query["id"]]).encode())
        elif name == "/counts":
            self._send(json.dumps(self.server.counts).encode(), "application/json")
        elif name == "/chunked":
            self._chunks(b"%d." % number for number in range(int(query["n"])))
        elif name == "/events":
            self._events(int(query.get("n", 3)), "held" in query)
        elif name == "/bytes":
            self._bytes(int(query["n"]), query.get("accel"))
        elif name == "/slow":
            if "id" in query:
                with self.server.lock:
                    self.server.counts[query["id"]] += 1
            time.sleep(float(query["s"]))
            self._send(b"slow")
        elif name == "/socket":
            self._socket()
        elif name == "/cut":
            self._cut(query["id"])
        else:
            self._send(f"nothing at {name}".encode(), status=404)

    do_HEAD = do_GET

    def do_POST(self):
        """`/early` answers and closes before it has read anything, or drops the rest if it is to be
        `drained`; else the body comes back, or its length if that is large."""
        query = parse_qs(urlsplit(self.path).query)
        if urlsplit(self.path).path == "/early":
            self._send(b"no more of that", status=413)
            self.close_connection = True
            if "drained" in query:
                self._drain()
            return
        if urlsplit(self.path).path == "/cut":
            self._cut(query["id"][0])
            return
        size, first = 0, b""
        for piece in self._body():
            size += len(piece)
            first = first + piece if size <= _PIECE else first
        for name in query.get("id", ()):
            with self.server.lock:
                self.server.counts[name] += 1
        self._send(first if size <= _PIECE else b"%d bytes" % size)

    do_PUT = do_DELETE = do_MOVE = do_OPTIONS = do_POST

    def _cut(self, name):
        """The first of an id is cut off without an answer; the others get how many there were."""
        with self.server.lock:
            self.server.counts[name] += 1
            count = self.server.counts[name]
        self.close_connection = True
        if count > 1:
            self._send(b"%d" % count)

    def _drain(self):
        """As nginx and others do: closed at once the connection is reset, and the answer lost."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        while self.rfile.read1(_PIECE):
            pass

    def _knows_its_name(self):
        """As Vite does by default: false, and refused, unless the host is localhost."""
        host = self.headers["Host"].partition(":")[0]
        known = host == "localhost" or host.endswith(".localhost")
        if not known:
            self._send(f"Blocked request. This host ({host}) is not allowed.".encode(), status=403)
        return known

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left and (piece := self.rfile.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece

    def _send(self, body, kind="text/plain", status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _chunks(self, pieces, kind="text/plain"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _events(self, count, is_held):
        """The second of those that are held comes once a test says so."""
        def events():
            for number in range(count):
                yield b"data: event-%d\n\n" % number
                if is_held:
                    self.server.go_on.wait(60)
                else:
                    time.sleep(0.2)
        self._chunks(events(), "text/event-stream")

    def _bytes(self, left, accel=None):
        """So many; `accel` is what an nginx before us is told to do with them."""
        self.send_response(200)
        if accel:
            self.send_header(*accel.split(":"))
        self.send_header("Content-Length", str(left))
        self.end_headers()
        while left:
            left -= self.wfile.write(bytes(min(left, _PIECE)))

    def _socket(self):
        key = self.headers["Sec-WebSocket-Key"] + _GUID
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept",
                         base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while head := self.rfile.read(2):
            size = head[1] & 127
            if size == 126:
                size = int.from_bytes(self.rfile.read(2), "big")
            mask = self.rfile.read(4)
            text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(size)))
            if head[0] & 15 == 8:
                self.wfile.write(b"\x88\x00")
                return
            length = bytes([len(text)]) if len(text) < 126 else b"\x7e" + len(text).to_bytes(2,
                                                                                             "big")
            self.wfile.write(bytes([0x80 | head[0] & 15]) + length + text)
            self.wfile.flush()

    def log_message(self, *arguments):
        """No log."""


if __name__ == "__main__":
    WebServer(int(sys.argv[1])).serve_forever()
