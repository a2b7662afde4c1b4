"""The figures of apps: how much the edge adds to plain nginx, for files and for what a sandbox
serves.

Both are the time that 1000 requests take under load, 32 at once. What is live is written into the
app's row here, without a deploy: the edge is what is measured.
"""
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import Figure
from bench.load import ROUNDS, load, nginx, pointed_at
from bin.stack.free_ports import free_port, free_ports
from config.nginx.render import RELEASES
from config.settings import Settings
from models.database import connection
from models.deploys import Deploy, StagedVersion
from models.ids import new_id
from models.sandboxes import Sandbox
from models.states import DeployStatus
from services.deploys.edges import staging

_SLUG, _SOON_S = "svc-bench", 3.0
_SCRIPT = "assets/app.js"
# Figure -> what is asked for: the page by its name, by the app's address, and by a route of the app
# that is no file; and a script.
_ASKED = {"static_page": "/index.html", "static_root": "/", "static_route": "/settings/profile",
          "static_script": f"/{_SCRIPT}"}
_FILES = {"index.html": b"<!doctype html><title>App</title>" + b"x" * 900,
          _SCRIPT: b"console.log(1);\n" * 14_000}
_BODY = "x" * 257


def static_throughput(settings: Settings, sandbox_id: str) -> Iterator[Figure]:
    """The page and a script of a static app; floor: nginx on the same files."""
    app_id, straight = new_id("app_"), free_port()
    version = settings.data_dir / RELEASES / _SLUG / f"{app_id}-v1-1"
    with _live(settings, sandbox_id, app_id=app_id, live_static=True), nginx(
            "files", settings, {"PORT": straight, "FILES": version}):
        _write(version)
        time.sleep(_SOON_S)
        for name, path in _ASKED.items():
            figure = Figure(name, note="1000 requests, 32 at once")
            _measure(figure, settings, straight, path)
            yield figure


def served_throughput(settings: Settings, sandbox_id: str) -> Figure:
    """A small answer of a served app; floor: nginx with kept connections, straight to the same
    server."""
    figure = Figure("served_app", note="1000 requests, 32 at once")
    upstream, straight = free_ports(2)
    words = {"UPSTREAM": upstream, "PORT": straight, "BODY": _BODY}
    with nginx("upstream", settings, words), nginx("straight", settings, words), pointed_at(
            sandbox_id, upstream), _live(settings, sandbox_id, app_id=new_id("app_"),
                                         live_static=False, live_sandbox_id=sandbox_id):
        _measure(figure, settings, straight, "/")
    return figure


def _measure(figure: Figure, settings: Settings, straight: int, path: str) -> None:
    host = f"{_SLUG}.{settings.apps_domain}"
    for _ in range(ROUNDS):
        figure.floor.append(load(straight, host, path))
        figure.samples.append(load(settings.edge_port, host, path))


def _write(version: Path) -> None:
    """As the process `releases` keeps a version, whose directory it is: of an app that has a row,
    or it is removed."""
    owner = version.parent.parent.stat()
    for name, content in _FILES.items():
        path = version / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for folder, _, files in os.walk(version.parent):
        for each in (folder, *(os.path.join(folder, file) for file in files)):
            os.chown(each, owner.st_uid, owner.st_gid)


@contextmanager
def _live(settings: Settings, sandbox_id: str, **columns: Any) -> Iterator[None]:
    with connection():
        Deploy.create(slug=_SLUG, owner_id=Sandbox.get_by_id(sandbox_id).owner_id,
                      status=DeployStatus.LIVE, live_version=1, live_epoch=1, **columns)
    staging.tell()
    time.sleep(_SOON_S)
    try:
        yield
    finally:
        with connection():
            Deploy.delete().where(Deploy.slug == _SLUG).execute()
            StagedVersion.delete().where(
                StagedVersion.prefix.contains(columns["app_id"])).execute()
        staging.tell()
        time.sleep(_SOON_S)
