"""A small npm registry over real sockets, with packages that tests publish.

Its documents name tarballs at its own address, as registries do. `seen` has the requests: method,
path, headers. While `status` is set, it is all that is answered.
"""
import base64
import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
from urllib.parse import unquote

SHORT = "application/vnd.npm.install-v1+json"


class NpmRegistry:
    def __init__(self, path=""):
        self.base, self.packages, self.tarballs, self.seen = path, {}, {}, []
        self.status, self.gate = None, threading.Event()
        self.gate.set()
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                registry.answer(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever,
                                        kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}{self.base}"

    def publish(self, name, version, files, **manifest):
        """A version of a package: files by path, and what its manifest has besides."""
        manifest = {"name": name, "version": version, **manifest}
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for path, text in {"package.json": json.dumps(manifest), **files}.items():
                info = tarfile.TarInfo(f"package/{path}")
                info.size, info.mode = len(text.encode()), 0o755
                archive.addfile(info, io.BytesIO(text.encode()))
        content = gzip.compress(data.getvalue(), mtime=0)
        tarball = f"/{name}/-/{name.split('/')[-1]}-{version}.tgz"
        self.tarballs[tarball] = content
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        package = self.packages.setdefault(name, {"name": name, "versions": {}})
        package["versions"][version] = {
            **manifest,
            "dist": {"tarball": f"{self.url}{tarball}", "integrity": f"sha512-{digest}"}}
        package["dist-tags"] = {"latest": version}

    def answer(self, handler):
        self.seen.append((handler.command, handler.path, dict(handler.headers)))
        self.gate.wait(120)
        path = unquote(handler.path).removeprefix(self.base)
        status, kind, body = 404, "application/json", b"{}"
        if self.status is not None:
            status = self.status
        elif path in self.tarballs:
            status, kind, body = 200, "application/octet-stream", self.tarballs[path]
        elif path[1:] in self.packages:
            kind = SHORT if SHORT in handler.headers.get("Accept", "") else kind
            status, body = 200, json.dumps(self.packages[path[1:]]).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self):
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
