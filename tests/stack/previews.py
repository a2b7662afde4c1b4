"""A sandbox with a web server, seen from the web: through the edge, at its preview host."""
import json
import threading
import time
from functools import partial
from urllib.parse import urlsplit

import httpx
import websocket

from tests.clients.load import Load
from tests.fakes.web_server import WebServer
from tests.stack.database import query
from tests.tls.clients import client, context_of

GUEST_PORT = 3000


class Preview:
    """The preview of one port of a persona's sandbox."""

    def __init__(self, stack, owner, sandbox_id, port=GUEST_PORT):
        self.stack, self.owner, self.sandbox_id = stack, owner, sandbox_id
        answer = owner.get(f"/v1/sandboxes/{sandbox_id}/url/{port}").raise_for_status()
        self.url = answer.json()["url"]
        self.host = urlsplit(self.url).hostname

    def client(self) -> httpx.Client:
        """A client of the preview, with connections of its own."""
        return client(self.stack, self.host)

    def get(self, path="/", **options):
        with self.client() as http:
            return http.get(path, **options)

    def post(self, path, **options):
        with self.client() as http:
            return http.post(path, **options)

    def socket(self):
        """An open WebSocket to `/socket`, to be closed by the caller."""
        port = self.stack.settings.edge_port
        return websocket.create_connection(
            f"wss://127.0.0.1:{port}/socket", host=f"{self.host}:{port}", timeout=60,
            sslopt={"context": context_of(self.stack), "server_hostname": self.host})

    def sleep(self):
        """Put the sandbox to sleep, as its owner does."""
        self.owner.post(f"/v1/sandboxes/{self.sandbox_id}/hibernate").raise_for_status()

    def status(self):
        return self.owner.get(f"/v1/sandboxes/{self.sandbox_id}").json()["status"]

    def idle_at(self):
        """When it falls asleep if nobody visits it any more."""
        return idle_at(self.stack, self.sandbox_id)

    def delete(self):
        self.owner.delete(f"/v1/sandboxes/{self.sandbox_id}")


def idle_at(stack, sandbox_id):
    """When a running sandbox falls asleep; an assertion fails if it has."""
    [(found,)] = query(stack, "SELECT idle_at FROM sandboxes WHERE id = %s", sandbox_id)
    assert found is not None, "it sleeps"
    return found


class Served:
    """A web server of this process, which simulated sandboxes serve as theirs."""

    def __init__(self):
        self.server = WebServer(0, "127.0.0.1")
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05},
                         daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def preview(self, stack, owner, **body):
        """A new sandbox of `owner` that serves it, and its preview."""
        sandbox_id = owner.create(ports=[GUEST_PORT], **body)["id"]
        owner.exec(sandbox_id, "serve", str(GUEST_PORT), "0", str(self.port))
        return Preview(stack, owner, sandbox_id)


class PreviewLoad(Load):
    """Clients that ask without a pause, each over a connection of its own: GETs, and POSTs that
    carry an id each. `failed` are the GETs that were not answered with 200."""

    def __init__(self, preview, gets=3, posts=1):
        self.preview = preview
        self.answered, self.sent, self.failed = 0, [], []
        super().__init__(*[self._gets] * gets,
                         *(partial(self._posts, number) for number in range(posts)))

    def _gets(self):
        with self.preview.client() as http:
            while not self.ends.is_set():
                try:
                    answer = http.get("/nonce")
                except httpx.HTTPError as error:
                    self.failed.append(repr(error))
                    continue
                self.answered += 1
                if answer.status_code != 200:
                    self.failed.append(f"{answer.status_code} {answer.text[:200]}")

    def _posts(self, number):
        with self.preview.client() as http:
            while not self.ends.is_set():
                name = f"{number}-{time.monotonic_ns()}"
                self.sent.append(name)
                try:
                    http.post(f"/?id={name}", content=b"once")
                except httpx.HTTPError:
                    continue

    def counts(self):
        """How often the guest got each POST that reached it."""
        return json.loads(self.preview.get("/counts").text)
