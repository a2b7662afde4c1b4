"""What measurements of throughput need: an nginx of their own, a sandbox's port that leads to it,
and wrk."""
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from config.nginx.render import certificate_of
from config.settings import Settings
from models.database import connection
from models.nodes import PortBinding

GUEST_PORT, CONNECTIONS, ROUND_S, ROUNDS = 3000, 32, 2, 9


def host_port(sandbox_id: str) -> int:
    with connection():
        return int(PortBinding.get(binding(sandbox_id)).host_port)


def binding(sandbox_id: str) -> object:
    return (PortBinding.sandbox_id == sandbox_id) & (PortBinding.guest_port == GUEST_PORT)


@contextmanager
def pointed_at(sandbox_id: str, port: int) -> Iterator[None]:
    """The preview leads to a port of this host, as far as the edge can see."""
    own = host_port(sandbox_id)
    with connection():
        PortBinding.update(host_port=port).where(binding(sandbox_id)).execute()
    try:
        yield
    finally:
        with connection():
            PortBinding.update(host_port=own).where(binding(sandbox_id)).execute()


@contextmanager
def nginx(name: str, settings: Settings, words: Mapping[str, object]) -> Iterator[None]:
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


def load(port: int, host: str, path: str = "/") -> float:
    """`load_url` of a path of an edge at this port, asked by the name of `host`."""
    return load_url(f"https://127.0.0.1:{port}{path}", f"Host: {host}")


def load_url(url: str, header: str) -> float:
    """Milliseconds for 1000 requests, with wrk asking as fast as it can."""
    shown = subprocess.run(["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{ROUND_S}s", "-H", header, url],
                           text=True, capture_output=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([0-9.]+)", shown)
    if rate is None or "Non-2xx" in shown:
        raise RuntimeError(f"the load went wrong: {shown}")
    return 1_000_000 / float(rate[1])
