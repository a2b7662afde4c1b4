"""The build of the presets image, with the real Bun, against a registry of the test's own: what
fails, fails alone, and is tried again."""
import base64
import dataclasses
import hashlib
import http.server
import inspect
import io
import json
import os
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from guest.image.errors import ImageError
from guest.presets import build as building
from guest.presets.build import build
from guest.presets.filesystem import read_file
from guest.presets.install import install
from guest.presets.recipe import PRESETS
from tests.host.driver_lab import Lab
from tests.stack.waiting import until

PROGRAM = "node_modules/tool-{}/cli.js"
CHOSEN = ("pi", "codex")


def tarball(name: str) -> bytes:
    """An npm package with a program, and a script that nobody is to run."""
    files = {
        "package.json": json.dumps({"name": name, "version": "1.0.0", "scripts": {
            "postinstall": "echo ran > postinstall-ran"}}),
        "cli.js": f"console.log('{name}')\n",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Registry(http.server.ThreadingHTTPServer):
    """Serves `tarballs` by package name, and counts what is asked for. Of a `hanging` one come
    a few bytes and nothing more; who asked for it is in `left` when they have gone."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.tarballs: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.hanging: dict[str, bytes] = {}
        self.left: list[tuple[str, bytes]] = []


class Answers(http.server.BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        name = self.path.strip("/").split("/")[0]
        content = self.server.tarballs.get(name)
        self.server.asked.append(name)
        if name in self.server.hanging:
            self.wfile.write(self.server.hanging[name])
            self.server.left.append((name, self.rfile.read()))  # until the other side is gone
            return
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch):
    server = Registry()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}/")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def image_dir(qemu_lab: Lab, tmp_path: Path) -> Path:
    """An image directory whose guest image has nothing but Bun in it."""
    made = tmp_path / "images-of-test"
    base, root = made / "images" / "base-1", tmp_path / "root"
    base.mkdir(parents=True)
    for directory in ("usr/local/bin", "opt/svc"):
        (root / directory).mkdir(parents=True)
    current = qemu_lab.settings.image_dir / "images" / "current" / "rootfs.raw"
    read_file(current, "/usr/local/bin/bun", root / "usr/local/bin/bun")
    with (base / "rootfs.raw").open("wb") as file:
        file.truncate(256 * 1024 ** 2)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", root,
                    base / "rootfs.raw"], check=True)
    (base / "vmlinuz").touch()
    (base / "image.json").write_text(json.dumps(
        {"key": "base-1", "kernel": "vmlinuz", "initrd": None, "rootfs": "rootfs.raw"}))
    (made / "images" / "current").symlink_to("base-1")
    return made


@pytest.fixture(autouse=True)
def recipes(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets of one small package each, whose locks have the right hashes."""
    small = {}
    for slug, preset in PRESETS.items():
        name, directory = f"tool-{slug}", tmp_path / "recipes" / slug
        directory.mkdir(parents=True)
        registry.tarballs[name] = tarball(name)
        digest = base64.b64encode(hashlib.sha512(registry.tarballs[name]).digest()).decode()
        wanted = {"name": "x", "dependencies": {name: "1.0.0"}}
        (directory / "package.json").write_text(json.dumps(wanted))
        (directory / "bun.lock").write_text(json.dumps({
            "lockfileVersion": 1, "workspaces": {"": wanted},
            "packages": {name: [f"{name}@1.0.0", "", {}, f"sha512-{digest}"]}}))
        small[slug] = dataclasses.replace(preset, recipes=directory.parent,
                                          bins={slug: PROGRAM.format(slug)})
    monkeypatch.setattr(building, "PRESETS", small)


def states(image: Path) -> dict[str, str]:
    record = json.loads((image / "presets.json").read_text())["presets"]
    return {slug: each["state"] for slug, each in record.items()}


def test_a_preset_that_fails_leaves_the_others_and_is_tried_again(
        image_dir: Path, registry: Registry, tmp_path: Path) -> None:
    good, registry.tarballs["tool-codex"] = registry.tarballs["tool-codex"], tarball("forged")
    first = build(image_dir, CHOSEN)
    assert states(first) | {"opencode": "", "claude": "", "lfg": ""} == {
        "opencode": "", "pi": "ready", "codex": "failed", "claude": "", "lfg": ""}
    record = json.loads((first / "presets.json").read_text())["presets"]
    assert "integrity" in record["codex"]["reason"].lower()
    assert "127.0.0.1" not in record["codex"]["reason"]
    assert "SVC_PRESETS" in record["claude"]["reason"]
    assert os.readlink(image_dir / "images/presets") == first.name
    read_file(first / "rootfs.raw", "/opt/svc/presets/pi/" + PROGRAM.format("pi"),
              tmp_path / "cli.js")
    assert (tmp_path / "cli.js").read_text() == "console.log('tool-pi')\n"

    registry.asked.clear()
    before = (first / "rootfs.raw").stat()
    assert build(image_dir, CHOSEN) == first
    assert registry.asked and set(registry.asked) == {"tool-codex"}
    assert (first / "rootfs.raw").stat().st_ino == before.st_ino

    registry.tarballs["tool-codex"] = good
    second = build(image_dir, CHOSEN)
    assert second != first and states(second)["codex"] == states(second)["pi"] == "ready"
    assert os.readlink(image_dir / "images/presets") == second.name and first.exists()
    registry.asked.clear()
    assert build(image_dir, CHOSEN) == second and registry.asked == []


@pytest.mark.parametrize("begun", [
    pytest.param(b"", id="no head"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n\x1f\x8b", id="no end")])
def test_a_vendor_that_hangs_is_given_up_and_the_others_are_made(
        image_dir: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str], begun: bytes) -> None:
    """Nothing ends of itself: without the limit the build would stand still."""
    limit_s = 10
    limits = {"pi": limit_s}
    monkeypatch.setattr(building, "install", lambda preset, *where: install(
        preset, *where, timeout_s=limits.get(preset.slug, 120)))
    registry.hanging["tool-pi"] = begun
    image = build(image_dir, CHOSEN)
    assert states(image)["pi"] == "failed" and states(image)["codex"] == "ready"
    record = json.loads((image / "presets.json").read_text())["presets"]
    assert record["pi"]["reason"] == (
        f"the packages of pi could not be fetched within {limit_s} s")
    assert f"NOTICE: pi failed: {record['pi']['reason']}" in capsys.readouterr().out
    if "tool-pi" in registry.asked:  # else its time was over before it had begun
        until(lambda: registry.left)
        assert set(registry.left) == {("tool-pi", b"")}, "what fetched it has ended"
    assert [tree.name.partition("-")[0] for tree in (image_dir / "presets").iterdir()] == ["codex"]

    registry.hanging.clear()
    limits.clear()
    assert states(build(image_dir, CHOSEN))["pi"] == "ready"


def test_presets_are_given_ten_minutes() -> None:
    assert inspect.signature(install).parameters["timeout_s"].default == 600


def test_an_outage_of_everything_still_makes_an_image_and_says_why(
        image_dir: Path, registry: Registry) -> None:
    registry.tarballs.clear()
    image = build(image_dir, CHOSEN)
    assert set(states(image).values()) == {"failed"}


def test_no_script_of_a_package_is_run_and_what_is_kept_belongs_to_root(
        image_dir: Path, registry: Registry) -> None:
    build(image_dir, ["pi"])
    (tree,) = (image_dir / "presets").iterdir()
    kept = list(tree.rglob("*"))
    assert not [path for path in kept if path.name == "postinstall-ran"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in kept} == {(0, 0)}
    assert not {"bun", "own"} & {path.name for path in tree.iterdir()}


def test_another_guest_image_gets_the_presets_without_fetching_them(
        image_dir: Path, registry: Registry) -> None:
    first = build(image_dir, ["pi"])
    registry.tarballs.clear()
    (image_dir / "images/base-1").rename(image_dir / "images/base-2")
    current = image_dir / "images/current"
    current.unlink()
    current.symlink_to("base-2")
    second = build(image_dir, ["pi"])
    assert second != first and states(second)["pi"] == "ready"


def test_what_a_killed_builder_left_is_removed(image_dir: Path) -> None:
    left = image_dir / "images" / ".presets-building-x"
    left.mkdir()
    (left / "half").touch()
    build(image_dir, ["pi"])
    assert not left.exists() and not list((image_dir / "images").glob(".presets-*"))


def test_a_name_that_is_no_preset_is_refused(image_dir: Path) -> None:
    with pytest.raises(ImageError, match="cursor, which is no preset"):
        build(image_dir, ["pi", "cursor"])


def test_a_disk_that_would_run_full_is_left_alone(image_dir: Path, registry: Registry) -> None:
    with pytest.raises(ImageError, match="stay free"):
        build(image_dir, ["pi"], keep_free_mb=10 ** 9)
    assert registry.asked == [] and not (image_dir / "images/presets").exists()
