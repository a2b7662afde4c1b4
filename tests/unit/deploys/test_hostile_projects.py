"""Projects that are made to do harm, on a real file system, judged and taken through a real agent:
each gets a clear error, or what is plain in it is taken."""
import itertools
import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from nodeworker.deploys import building, replication
from nodeworker.deploys.build_scripts import LOOKED_AT_MOST
from nodeworker.deploys.storing import store
from services.deploys.projects.manifest import BadProject, read_project
from tests.host.agent_process import TOKEN, start_agent, stop_agent

SITE = read_project('{"output": "dist"}', None)
SERVER = read_project('{"start": "bun server.js"}', None)
NUMBERS = itertools.count(1)
SQLITE = b"SQLite format 3\0" + bytes(84)


@pytest.fixture(scope="module")
def guest(tmp_path_factory):
    """An agent whose guest is a directory of this machine."""
    root = tmp_path_factory.mktemp("guest")
    (root / "opt/svc").mkdir(parents=True)
    (root / "opt/svc/initial-token").write_text(TOKEN)
    running = start_agent(root)
    yield running
    stop_agent(running)
    shutil.rmtree(root)


class Hostile:
    """A project in a directory of its guest, with a page."""

    def __init__(self, guest, name):
        self.path, self.agent, self._inside = guest.root / name, guest.client(), f"/{name}"
        (self.path / "dist").mkdir(parents=True)
        (self.path / "dist/index.html").write_text("page")

    def read(self):
        return building.read_project(self.agent, self._inside)

    def judge(self, project):
        return building.judge(self.agent, self._inside, project)

    def holds_database(self, name):
        return replication.is_database(self.agent, str(self.path / name))

    def take(self, output):
        """The paths that are taken of an output, and all their bytes together."""
        kept = Taken()
        listed = store(kept, "apps/x/v1-1/", self.agent.archive(f"{self._inside}/{output}", 240),
                       files_most=20_000, bytes_most=1 << 30)
        return [file.path for file in listed], b"".join(kept.objects.values())

    def fill(self, folder, number):
        """Make so many empty files."""
        (self.path / folder).mkdir(parents=True, exist_ok=True)
        for name in range(number):
            os.close(os.open(self.path / folder / str(name), os.O_CREAT | os.O_WRONLY))


@pytest.fixture
def project(guest):
    name = f"project{next(NUMBERS)}"
    yield Hostile(guest, name)
    shutil.rmtree(guest.root / name)


class Taken:
    """Keeps what is stored."""

    def __init__(self):
        self.objects = {}

    def put_stream(self, key, chunks, headers=None):
        self.objects[key] = b"".join(chunks)
        return len(self.objects[key])


def test_of_what_is_no_plain_file_nothing_is_read_or_taken(project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("of another")
    (outside / "rows.db").write_bytes(SQLITE)
    output = project.path / "dist"
    for name, target in {"root": "/", "up": "../../..", "loop": "loop", "self": ".",
                         "secret": outside / "secret", "zero": "/dev/zero"}.items():
        (output / name).symlink_to(target)
    os.mkfifo(output / "pipe")
    os.mknod(output / "disk", 0o600 | 0o060000, os.makedev(8, 0))
    os.mknod(output / "endless", 0o600 | 0o020000, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(output / "socket"))
    for name in ("..\\up", "a\nb", ".env"):
        (output / name).write_text("of another")
    for name in ("..a", "...", "b.."):
        (output / name).write_text("plain")
    assert project.judge(SITE).is_static, "links lead to no database"
    paths, content = project.take("dist")
    assert paths == ["b..", "index.html"] and b"of another" not in content


@pytest.mark.parametrize("name", ["a\nb.db", "$(id).db", "'; id; '.db", "-rf", "é.db"])
def test_a_database_of_whatever_name_is_found(project, name):
    (project.path / name).write_bytes(SQLITE)
    assert project.judge(SERVER).database == name


def test_a_database_with_a_name_that_is_no_text_is_told(project):
    (project.path / os.fsdecode(b"\xff.db")).write_bytes(SQLITE)
    with pytest.raises(BadProject, match="not UTF-8"):
        project.judge(SERVER)


def test_a_database_is_told_by_what_it_holds(project):
    assert not project.holds_database("rows.db")
    (project.path / "rows.db").write_bytes(SQLITE)
    assert project.holds_database("rows.db")
    os.mkfifo(project.path / "pipe")
    (project.path / "zero").symlink_to("/dev/zero")
    for name in ("dist", "dist/index.html", "pipe", "zero"):
        assert not project.holds_database(name), name


@pytest.mark.slow
def test_more_files_than_are_looked_at_are_told(project):
    project.fill("src", LOOKED_AT_MOST)
    with pytest.raises(BadProject, match="more than 50000 files"):
        project.judge(SITE)


@pytest.mark.slow
def test_more_files_than_an_app_may_have_are_told_wherever_nobody_looked(project):
    output = "node_modules/page"
    project.fill(output, 20_000)
    (project.path / output / "index.html").write_text("page")
    hidden = read_project(json.dumps({"output": output}), None)
    assert project.judge(hidden).output == output
    with pytest.raises(BadProject, match="more than 20000 files"):
        project.take(output)


def test_folders_that_lead_too_deep_for_a_path_are_no_files(project, monkeypatch):
    monkeypatch.chdir(project.path / "dist")
    for _ in range(40):
        os.mkdir("a" * 200)
        os.chdir("a" * 200)
    Path("page.html").write_text("deep down")
    monkeypatch.undo()
    assert project.judge(SITE).is_static
    assert project.take("dist")[0] == ["index.html"]


def a_link(path):
    path.symlink_to("/dev/zero")


def a_hole(path):
    path.touch()
    os.truncate(path, 50 << 30)


def a_loop(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize("made", [a_link, a_hole, a_loop, os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["svc.json", "package.json"])
def test_a_manifest_that_is_no_plain_file_is_told_and_not_waited_for(project, name, made):
    made(project.path / name)
    with pytest.raises(BadProject, match=f"{name} cannot be read"):
        project.read()


@pytest.mark.parametrize("field", ["output", "database", "build", "start"])
@pytest.mark.parametrize("value", ["\ud800", "a\udfffb"])
def test_what_is_no_text_is_told(field, value):
    with pytest.raises(BadProject, match=f"`{field}` in svc.json"):
        read_project(json.dumps({field: value}), None)
