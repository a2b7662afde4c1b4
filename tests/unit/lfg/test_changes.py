"""What changed in the project, by a real git."""
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.host.javascript import bun
from tests.host.lfg_server import APP, LfgServer
from tests.stack.waiting import is_alive, until

MAX_CHANGES, MAX_DIFF_BYTES = 500, 512 * 1024
ODD = ["with space", "ä€", 'quo"te', "new\nline", "-rf", "a -> b", "[glob]*", "tab\there"]


@pytest.fixture
def repository(lfg):
    lfg.git("init", "--quiet", "--initial-branch", "trunk")
    return lfg.project


def changes(lfg) -> dict[str, str]:
    return {change["path"]: change["kind"] for change in lfg.get("/api/changes")["changes"]}


def diff(lfg, path) -> str:
    return lfg.get("/api/diff", path=path)["text"]


def test_without_a_repository_it_says_so_and_can_make_one(lfg):
    assert lfg.get("/api/changes") == {"repository": None}
    assert lfg.http.get("/api/diff", params={"path": "x"}).status_code == 409
    assert lfg.change("POST", "/api/repository").status_code == 201
    assert lfg.get("/api/changes")["repository"] == str(lfg.project)


def test_before_the_first_commit_everything_is_new(lfg, repository):
    (repository / "known").write_text("one\n")
    (repository / "unknown").write_text("two\n")
    lfg.git("add", "known")
    assert changes(lfg) == {"known": "added", "unknown": "untracked"}
    assert "+one" in diff(lfg, "known") and "+two" in diff(lfg, "unknown")


def test_every_kind_of_change_and_its_diff(lfg, repository):
    for name in ("edited", "removed", "moved", "staged", "same"):
        (repository / name).write_text(f"{name}\nsecond\nthird\n")
    lfg.git("add", ".")
    lfg.git("commit", "-m", "one")
    (repository / "edited").write_text("edited\nchanged\nthird\n")
    (repository / "removed").unlink()
    lfg.git("mv", "moved", "there")
    (repository / "staged").write_text("staged\n")
    lfg.git("add", "staged")
    (repository / "new").mkdir()
    (repository / "new/file").write_text("new\n")
    assert changes(lfg) == {
        "edited": "changed", "removed": "deleted", "there": "renamed", "staged": "changed",
        "new/file": "untracked"}
    assert lfg.get("/api/changes")["branch"] == "trunk"
    assert "-second\n+changed\n" in diff(lfg, "edited")
    assert "-second" in diff(lfg, "removed") and "-second" in diff(lfg, "staged")
    assert "+new" in diff(lfg, "new/file") and diff(lfg, "same") == ""


def test_both_sides_of_a_merge_in_conflict(lfg, repository):
    (repository / "file").write_text("one\n")
    lfg.git("add", ".")
    lfg.git("commit", "-m", "one")
    lfg.git("checkout", "-b", "side")
    for branch in ("side", "trunk"):
        lfg.git("checkout", branch)
        (repository / "file").write_text(f"{branch}\n")
        lfg.git("commit", "-am", branch)
    with pytest.raises(Exception, match="merge"):
        lfg.git("merge", "side")
    assert changes(lfg) == {"file": "conflict"}
    assert "<<<<<<<" in diff(lfg, "file")


def test_odd_names(lfg, repository):
    for name in ODD:
        (repository / name).write_text("here\n")
    assert changes(lfg) == dict.fromkeys(ODD, "untracked")
    assert all("+here" in diff(lfg, name) for name in ODD)
    lfg.git("add", "-A")
    lfg.git("commit", "-m", "one")
    for name in ODD:
        (repository / name).write_text("there\n")
    assert changes(lfg) == dict.fromkeys(ODD, "changed")
    assert all("-here\n+there" in diff(lfg, name) for name in ODD)


def test_what_git_is_set_to_ignore_and_to_run_stays_out_of_it(lfg, repository):
    (repository / ".gitignore").write_text("ignored\n")
    (repository / "ignored").touch()
    (repository / ".gitattributes").write_text("* diff=odd\n")
    lfg.git("add", ".")
    lfg.git("commit", "-m", "one")
    lfg.git("config", "diff.odd.textconv", "touch ran; cat")
    lfg.git("config", "diff.external", "touch ran")
    lfg.git("config", "core.fsmonitor", "touch ran; true")
    (repository / ".gitignore").write_text("ignored\nmore\n")
    assert changes(lfg) == {".gitignore": "changed"}
    assert "+more" in diff(lfg, ".gitignore")


def test_much_is_cut(lfg, repository):
    for number in range(MAX_CHANGES + 1):
        (repository / str(number)).touch()
    (repository / "0").write_text("a line\n" * 200_000)
    told = lfg.get("/api/changes")
    assert len(told["changes"]) == MAX_CHANGES and told["more"]
    shown = lfg.get("/api/diff", path="0")
    assert shown["cut"] and len(shown["text"]) <= MAX_DIFF_BYTES


def test_looking_on_takes_no_lock_of_the_repository(lfg, repository):
    (repository / "file").write_text("one\n")
    lfg.git("add", ".")
    before = (repository / ".git/index").stat()
    (repository / "file").touch()
    assert changes(lfg) == {"file": "added"}
    assert (repository / ".git/index").stat().st_ino == before.st_ino, "status wrote the index"


def test_a_repository_above_the_project_is_shown_whole(lfg):
    lfg.git("init", "--quiet", "..")
    (lfg.project / "file").write_text("x\n")
    told = lfg.get("/api/changes")
    assert told["repository"] == str(lfg.project.parent)
    assert "project/file" in changes(lfg) and "+x" in diff(lfg, "project/file")


@pytest.fixture
def hasty(tmp_path):
    """A server that gives git three seconds."""
    if not bun():
        pytest.skip("Bun is taken out of the guest image, and there is none yet")
    shutil.copytree(APP, tmp_path / "app")
    source = tmp_path / "app/server/git.ts"
    shortened = source.read_text().replace("PATIENCE_MS = 15_000", "PATIENCE_MS = 3_000")
    assert shortened != source.read_text()
    source.write_text(shortened)
    server = LfgServer(tmp_path, {}, app=tmp_path / "app")
    yield server
    server.close()


def test_git_that_waits_for_a_filter_is_given_up_and_makes_room(hasty):
    """The filter has git's pipes, and lives on without git."""
    hasty.git("init", "--quiet")
    (hasty.project / "file").write_text("one\n")
    hasty.git("add", ".")
    started = hasty.project.parent / "started"
    hasty.git("config", "filter.slow.clean", f"echo $$ >> {started}; sleep 300; cat")
    (hasty.project / ".gitattributes").write_text("file filter=slow\n")
    (hasty.project / "file").write_text("two\n")

    def ask() -> tuple[int, str]:
        answer = hasty.http.get("/api/changes")
        return answer.status_code, answer.json().get("error", "")

    with ThreadPoolExecutor(2) as browsers:
        asked = [browsers.submit(ask) for _ in range(2)]  # both places of git
        assert [each.result() for each in asked] == [(504, "git takes too long here.")] * 2
    filters = [int(pid) for pid in started.read_text().split()]
    assert filters
    until(lambda: not any(is_alive(pid) for pid in filters), 30)
    hasty.git("config", "filter.slow.clean", "cat")
    assert changes(hasty) == {"file": "added", ".gitattributes": "untracked"}
