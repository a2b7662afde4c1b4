"""The figures of previews: how much the edge adds to plain nginx, and how long a visitor waits for
a sleeping sandbox.

`preview_throughput` is the time that 1000 requests take under load, 32 at once. A sandbox's port
is pointed at a server that is much faster than any guest, so that the edge is what is measured.
"""
import re
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.api import Api
from bench.figures import Figure, timed
from bin.stack.ports import free_port
from config.nginx.render import certificate_of
from config.settings import Settings
from models.database import connection
from models.nodes import PortBinding

_GUEST_PORT, _CONNECTIONS, _ROUND_S, _ROUNDS = 3000, 32, 2, 9
_BODY = "x" * 257
_SERVER = ("import http.server,socketserver;"
           "http.server.SimpleHTTPRequestHandler.protocol_version='HTTP/1.1';"
           f"http.server.ThreadingHTTPServer(('',{_GUEST_PORT}),"
           "http.server.SimpleHTTPRequestHandler).serve_forever()")


def preview_throughput(api: Api, settings: Settings, sandbox_id: str) -> Figure:
    """Milliseconds for 1000 requests under load; floor: nginx with kept connections, straight to
    the same server."""
    figure = Figure("preview_throughput", note="1000 requests, 32 at once")
    host = urlsplit(api.preview(sandbox_id, _GUEST_PORT)).hostname or ""
    upstream, straight = free_port(), free_port()
    words = {"UPSTREAM": upstream, "PORT": straight, "BODY": _BODY}
    with _nginx("upstream", settings, words), _nginx("straight", settings, words), _pointed_at(
            sandbox_id, upstream):
        for _ in range(_ROUNDS):
            figure.floor.append(_load(straight, host))
            figure.samples.append(_load(settings.edge_port, host))
    return figure


def preview_wake(api: Api, settings: Settings, sandbox_id: str, count: int) -> Figure:
    """The first request to a sleeping sandbox; floor: a wake by the API, then the same request
    straight to the guest."""
    figure = Figure("preview_wake", note="the first request to a sleeping sandbox")
    url = urlsplit(api.preview(sandbox_id, _GUEST_PORT))
    api.start(sandbox_id, "python3", "-c", _SERVER)
    with _visitor(settings, url.hostname or "") as visitor:
        while visitor.get("/").status_code != 200:
            time.sleep(0.2)
        straight = f"http://{settings.node_address}:{_host_port(sandbox_id)}/"
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


def _host_port(sandbox_id: str) -> int:
    with connection():
        return int(PortBinding.get(_binding(sandbox_id)).host_port)


def _binding(sandbox_id: str) -> object:
    return (PortBinding.sandbox_id == sandbox_id) & (PortBinding.guest_port == _GUEST_PORT)


@contextmanager
def _pointed_at(sandbox_id: str, port: int) -> Iterator[None]:
    """The preview leads to a port of this host, as far as the edge can see."""
    own = _host_port(sandbox_id)
    with connection():
        PortBinding.update(host_port=port).where(_binding(sandbox_id)).execute()
    try:
        yield
    finally:
        with connection():
            PortBinding.update(host_port=own).where(_binding(sandbox_id)).execute()


@contextmanager
def _nginx(name: str, settings: Settings, words: Mapping[str, object]) -> Iterator[None]:
    text = (Path(__file__).parent / f"{name}.nginx").read_text()
    certificate, key = certificate_of(settings)
    with tempfile.TemporaryDirectory() as directory:
        own = {"DIRECTORY": directory, "CERTIFICATE": certificate, "KEY": key}
        for word, value in {**own, **words}.items():
            text = text.replace(word, str(value))
        configuration = Path(directory) / "nginx.conf"
        configuration.write_text(text)
        # In a session of its own, as the edge is: the kernel shares the processors among sessions.
        process = subprocess.Popen(["nginx", "-e", "stderr", "-p", directory, "-c",
                                    str(configuration)], start_new_session=True)
        try:
            time.sleep(1)
            yield
        finally:
            process.terminate()
            process.wait()


def _load(port: int, host: str) -> float:
    """Milliseconds for 1000 requests, with wrk asking as fast as it can."""
    shown = subprocess.run(
        ["wrk", "-t2", f"-c{_CONNECTIONS}", f"-d{_ROUND_S}s", "-H", f"Host: {host}",
         f"https://127.0.0.1:{port}/"], text=True, capture_output=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([0-9.]+)", shown)
    if rate is None or "Non-2xx" in shown:
        raise RuntimeError(f"the load went wrong: {shown}")
    return 1_000_000 / float(rate[1])
