"""How a build is begun and followed by its log and exit code, with a shell of this host as the
guest's."""
import json
import os
import subprocess
import sys

import pytest

from guest.client.errors import AgentTimeout
from guest.client.results import ExecResult
from nodeworker.deploys import building
from nodeworker.deploys.build_scripts import INNER, LOOK
from services.deploys.logs import LOG_BYTES_MOST


class Shell:
    """Runs what the agent would run."""

    def exec(self, argv, **options):
        done = subprocess.run(argv, capture_output=True, check=False)
        return ExecResult(done.stdout, done.stderr, done.returncode)


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "WORK", str(tmp_path))
    return tmp_path


def test_a_guest_in_which_no_build_was_begun_says_so(work):
    work.rmdir()
    assert building.look(Shell(), 0) is None


def test_a_build_under_way_gives_what_its_log_has_gained(work):
    assert building.look(Shell(), 0) == building.Look(b"", None)
    (work / "log").write_bytes(b"so far")
    assert building.look(Shell(), 3) == building.Look(b"far", None)


def test_a_build_has_ended_once_all_of_its_log_is_read(work):
    (work / "log").write_bytes(b"x" * (building._PIECE_BYTES + 5))
    (work / "exit").write_text("7\n")
    first = building.look(Shell(), 0)
    assert (len(first.log), first.exit_code) == (building._PIECE_BYTES, None)
    assert building.look(Shell(), building._PIECE_BYTES) == building.Look(b"x" * 5, 7)


def test_what_a_busy_guest_said_of_half_a_look_is_not_taken_for_all_of_it(work):
    class Busy:
        def exec(self, argv, **options):
            return ExecResult(b"0\n", b"", 124, timed_out=True)

    with pytest.raises(AgentTimeout):
        building.look(Busy(), 0)


def test_a_build_that_says_more_than_a_log_keeps_ends_too(work):
    (work / "log").write_bytes(b"x" * (LOG_BYTES_MOST + 3 * building._PIECE_BYTES))
    (work / "exit").write_text("0\n")
    assert building.look(Shell(), LOG_BYTES_MOST + 1) == building.Look(b"", 0)


def test_the_last_lines_are_those_before_and_after_where_the_log_was_cut(work):
    (work / "log").write_text("".join(f"{n}\n" for n in range(60)) + "cut he")
    assert building.last_lines(Shell()).splitlines() == [*map(str, range(11, 60)), "cut he"]
    (work / "last").write_text("re\nlast\n")
    assert building.last_lines(Shell()).splitlines()[-2:] == ["cut here", "last"]
    (work / "last").write_text("x" * 20_000)
    assert set(building.last_lines(Shell())) == {"x"}


BUN = """#!/bin/sh
echo "bun $* from ${BUN_CONFIG_REGISTRY:-the internet}"
"""


def build(directory, files, line="", cache=True, **env):
    """What the build of a project says, with a Bun and a curl that only talk."""
    tools = directory / "tools"
    tools.mkdir()
    for name, text in {"bun": BUN, "curl": f"#!/bin/sh\nexit {0 if cache else 7}\n"}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    project = directory / "project"
    project.mkdir()
    for name, text in files.items():
        (project / name).write_text(text)
    return subprocess.run(
        ["/bin/sh", "-c", INNER, "build", line, "http://cache/npm"], cwd=project, text=True,
        capture_output=True, check=False,
        env={"PATH": f"{tools}:{os.environ['PATH']}", **env}).stdout


PACKAGE = {"package.json": "{}"}


@pytest.mark.parametrize(("files", "env", "said"), [
    ({}, {}, ""),
    (PACKAGE, {}, "bun install from http://cache/npm/\n"),
    (PACKAGE | {"bun.lock": ""}, {}, "bun install --frozen-lockfile from http://cache/npm/\n"),
    (PACKAGE | {"package-lock.json": ""}, {}, "bun install from http://cache/npm/\n"),
    (PACKAGE, {"BUN_CONFIG_REGISTRY": "http://own"}, "bun install from http://own\n"),
])
def test_packages_come_from_the_cache_unless_the_caller_said_otherwise(tmp_path, files, env, said):
    lines = build(tmp_path, files, **env).splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith("$")) == said


def test_without_a_cache_they_come_from_the_internet(tmp_path):
    assert "no registry cache" in build(tmp_path, PACKAGE, cache=False)


@pytest.mark.parametrize(("name", "text"), [
    ("package-lock.json", '"resolved": "https://r.test:81/a/-/a-1.tgz", "url": "https://no.test"'),
    ("yarn.lock", 'a@1:\n  version "1"\n  resolved "https://r.test:81/a/-/a-1.tgz#123"\n'),
    ("bun.lock", '"a": ["a@1.0.0", "https://r.test:81/a/-/a-1.tgz", {}, "sha512-x"],'),
])
def test_a_lock_that_names_hosts_is_told(tmp_path, name, text):
    said = build(tmp_path, PACKAGE | {name: text})
    assert f"[{name} names packages at https://r.test:81 - they come from there" in said
    assert "no.test" not in said


def test_a_lock_that_names_none_or_the_cache_is_not_told(tmp_path):
    lock = '"a": ["a@1.0.0", "http://cache/npm/a/-/a-1.tgz", {}, ""], "b": ["b@1.0.0", "", {}]'
    assert "names packages" not in build(tmp_path, PACKAGE | {"bun.lock": lock})


def test_a_build_that_fails_says_its_code(tmp_path):
    assert build(tmp_path, {}, "echo so far; (exit 3) || exit 4; echo never") == (
        "$ echo so far; (exit 3) || exit 4; echo never\nso far\n")


def look_at(directory, look=LOOK, live=""):
    return json.loads(subprocess.run(
        [sys.executable, "-c", look, '["dist", "."]', live], cwd=directory, check=True,
        capture_output=True).stdout)


def test_a_project_is_looked_through_for_databases_and_functions_only_in_plain_files(tmp_path):
    for folder in ("dist", "functions/deep", "node_modules/x", ".git"):
        (tmp_path / folder).mkdir(parents=True)
    header = b"SQLite format 3\0" + bytes(84)
    for name in ("app.bin", "node_modules/x/a.db", ".git/b.db", "functions/deep/c.ts"):
        (tmp_path / name).write_bytes(header)
    (tmp_path / "dist/index.html").write_bytes(b"page")
    os.mkfifo(tmp_path / "pipe")
    for name, target in {"self": ".", "zero": "/dev/zero", "functions/link": "/etc/passwd",
                         "index.html": "/dev/null"}.items():
        (tmp_path / name).symlink_to(target)
    assert look_at(tmp_path) == {
        "directories": ["dist"], "functions": 1, "tooMany": False,
        "databases": ["app.bin", "functions/deep/c.ts"]}


def test_of_many_databases_the_live_one_and_the_first_by_name_are_told(tmp_path):
    names = [f"{number:02}/x.db" for number in range(14)]
    for name in reversed(names):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"SQLite format 3\0")
    assert look_at(tmp_path)["databases"] == names[:10]
    assert look_at(tmp_path, live=names[12])["databases"] == [names[12], *names[:9]]


def test_a_project_of_very_many_files_is_not_looked_through_to_its_end(tmp_path):
    for number in range(30):
        (tmp_path / str(number)).touch()
    few = LOOK.replace(f", {building.LOOKED_AT_MOST}", ", 20")
    assert look_at(tmp_path)["tooMany"] is False and look_at(tmp_path, few)["tooMany"] is True
