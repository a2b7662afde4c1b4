"""The figures of previews: how much the edge adds to plain nginx, and how long a visitor waits for
a sleeping sandbox.

`preview_throughput` is the time that 1000 requests take under load, 32 at once. A sandbox's port
is pointed at a server that is much faster than any guest, so that the edge is what is measured.
"""
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx

from bench.api import Api
from bench.figures import Figure, timed
from bench.load import GUEST_PORT, ROUNDS, host_port, load, nginx, pointed_at
from bin.stack.free_ports import free_ports
from config.settings import Settings

_BODY = "x" * 257
_SERVER = ("import http.server,socketserver;"
           "http.server.SimpleHTTPRequestHandler.protocol_version='HTTP/1.1';"
           f"http.server.ThreadingHTTPServer(('',{GUEST_PORT}),"
           "http.server.SimpleHTTPRequestHandler).serve_forever()")


def preview_throughput(api: Api, settings: Settings, sandbox_id: str) -> Figure:
    """Milliseconds for 1000 requests under load; floor: nginx with kept connections, straight to
    the same server."""
    figure = Figure("preview_throughput", note="1000 requests, 32 at once")
    host = urlsplit(api.preview(sandbox_id, GUEST_PORT)).hostname or ""
    upstream, straight = free_ports(2)
    words = {"UPSTREAM": upstream, "PORT": straight, "BODY": _BODY}
    with nginx("upstream", settings, words), nginx("straight", settings, words), pointed_at(
            sandbox_id, upstream):
        for _ in range(ROUNDS):
            figure.floor.append(load(straight, host))
            figure.samples.append(load(settings.edge_port, host))
    return figure


def preview_wake(api: Api, settings: Settings, sandbox_id: str, count: int) -> Figure:
    """The first request to a sleeping sandbox; floor: a wake by the API, then the same request
    straight to the guest."""
    figure = Figure("preview_wake", note="the first request to a sleeping sandbox")
    url = urlsplit(api.preview(sandbox_id, GUEST_PORT))
    api.start(sandbox_id, "python3", "-c", _SERVER)
    with _visitor(settings, url.hostname or "") as visitor:
        while visitor.get("/").status_code != 200:
            time.sleep(0.2)
        straight = f"http://{settings.node_address}:{host_port(sandbox_id)}/"
        for _ in range(count):
            api.act(sandbox_id, "hibernate")

            def by_api() -> None:
                api.act(sandbox_id, "wake")
                httpx.get(straight, trust_env=False, timeout=60).raise_for_status()

            figure.floor.append(timed(by_api))
            api.act(sandbox_id, "hibernate")
            figure.samples.append(timed(lambda: visitor.get("/").raise_for_status()))
    return figure


@contextmanager
def _visitor(settings: Settings, host: str) -> Iterator[httpx.Client]:
    def name(request: httpx.Request) -> None:
        request.extensions["sni_hostname"] = host

    context = ssl.create_default_context(cafile=settings.ca_file or None)
    with httpx.Client(base_url=f"https://127.0.0.1:{settings.edge_port}", verify=context,
                      headers={"Host": f"{host}:{settings.edge_port}"}, trust_env=False,
                      timeout=120, event_hooks={"request": [name]}) as client:
        yield client
