"""What a project is to be built into, and whether it is static, by table."""
import json

import pytest

from services.deploys.manifest import BadProject, Built, judge, read_project

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


@pytest.mark.parametrize(("svc_json", "package_json", "directories", "databases", "sentence"), [
    (None, None, set(), [], "Nothing to serve"),
    (said(output="out"), VITE, {"dist"}, [], "no index.html in out"),
    (None, VITE, {"dist"}, ["app.db"], "needs a start command"),
])
def test_what_cannot_be_served(svc_json, package_json, directories, databases, sentence):
    with pytest.raises(BadProject, match=sentence):
        judge(read_project(svc_json, package_json), directories, databases, 0)


@pytest.mark.parametrize(("svc_json", "sentence"), [
    ("{", "not JSON"), ("[]", "does not hold an object"), ("[" * 100_000, "not JSON"),
    (said(output="../x"), "must stay in the project"), (said(output="/etc"), "must stay"),
    (said(output=3), "must be a path"), (said(build=" "), "must be a command"),
    (said(build="x" * 5000), "must be a command"), (said(start="a\0b"), "must be a command"),
])
def test_a_file_that_cannot_be_read_is_named(svc_json, sentence):
    with pytest.raises(BadProject, match=sentence):
        read_project(svc_json, None)


def test_paths_are_normalised_and_what_it_leaves_out_is_read_off_the_package():
    project = read_project(said(output="./a//b/"), VITE)
    assert (project.output, project.build, project.start) == ("a/b", "bun run build", None)
