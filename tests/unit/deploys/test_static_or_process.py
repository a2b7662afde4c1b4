"""Whether a built project is a static app or one with a process, by table."""
import json

import pytest

from services.deploys.projects.manifest import BadProject, read_project
from services.deploys.projects.static_or_process import Built, judge

VITE = json.dumps({"scripts": {"build": "vite build", "dev": "vite"}})
CRA = json.dumps({"scripts": {"build": "react-scripts build", "start": "react-scripts start"}})
SERVER = json.dumps({"scripts": {"start": "bun server.ts"}})


def said(**fields):
    return json.dumps(fields)


@pytest.mark.parametrize(("svc_json", "package_json", "directories", "databases", "functions",
                          "built"), [
    (None, VITE, {"dist"}, [], 0, Built("dist", None, None, 0)),
    (None, CRA, {"build"}, [], 0, Built("build", None, None, 0)),
    (None, None, {"."}, [], 0, Built(".", None, None, 0)),
    (None, None, {"public", "."}, [], 0, Built("public", None, None, 0)),
    (said(output="out"), VITE, {"out", "dist"}, [], 0, Built("out", None, None, 0)),
    (None, SERVER, {"."}, [], 0, Built(None, "bun run start", None, 0)),
    # It says static, and has what no static app has.
    (said(output="dist", start="bun s.ts"), None, {"dist"}, [], 0,
     Built(None, "bun s.ts", None, 0)),
    (said(output="dist"), SERVER, {"dist"}, ["data/app.bin"], 0,
     Built(None, "bun run start", "data/app.bin", 0)),
    (said(output="dist"), SERVER, {"dist"}, [], 2, Built(None, "bun run start", None, 2)),
    (said(output="dist", database="x.db"), SERVER, {"dist"}, [], 0,
     Built(None, "bun run start", "x.db", 0)),
])
def test_what_was_built(svc_json, package_json, directories, databases, functions, built):
    project = read_project(svc_json, package_json)
    assert judge(project, directories, databases, functions) == built
    assert built.is_static == (built.output is not None)


@pytest.mark.parametrize(("svc_json", "databases", "live", "database"), [
    (None, ["data.db", ".cache/b.sqlite"], None, ".cache/b.sqlite"),
    (None, ["data.db", ".cache/b.sqlite"], "data.db", "data.db"),
    (said(database="x.db"), ["data.db", ".cache/b.sqlite"], "data.db", "x.db"),
    (said(database="x.db"), [".cache/b.sqlite"], "data.db", "x.db"),
    (None, [], "data.db", "data.db"),
    (None, [], None, None),
    (said(database=None), [], "data.db", None),
])
def test_which_file_is_the_database(svc_json, databases, live, database):
    assert judge(read_project(svc_json, SERVER), set(), databases, 0, live).database == database


@pytest.mark.parametrize("databases", [[".cache/b.sqlite"], ["a.db", "b.db"], ["data.db2"]])
def test_another_file_is_not_taken_for_the_database_unless_it_is_named(databases):
    with pytest.raises(BadProject, match="in data.db, .* name its database, `database` in svc.jso"):
        judge(read_project(None, SERVER), set(), databases, 0, "data.db")


def test_an_app_with_a_database_becomes_files_alone_only_by_a_word():
    for package_json in (VITE, SERVER):
        with pytest.raises(BadProject, match="in data.db, .* files alone.* `start` .*null` there"):
            judge(read_project(None, package_json), {"dist"}, [], 0, "data.db")
    given_up = read_project(said(database=None), SERVER)
    assert judge(given_up, {"dist"}, [], 0, "data.db") == Built("dist", None, None, 0)
    with pytest.raises(BadProject, match="that the app has none, and a.db in the project is a SQL"):
        judge(given_up, {"dist"}, ["b.db", "a.db"], 0, "data.db")


@pytest.mark.parametrize(("svc_json", "package_json", "directories", "databases", "sentence"), [
    (None, None, set(), [], "Nothing to serve"),
    (said(output="out"), VITE, {"dist"}, [], "no index.html in out"),
    (None, VITE, {"dist"}, ["app.db"], "needs a start command"),
])
def test_what_cannot_be_served(svc_json, package_json, directories, databases, sentence):
    with pytest.raises(BadProject, match=sentence):
        judge(read_project(svc_json, package_json), directories, databases, 0)
