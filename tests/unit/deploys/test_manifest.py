"""What a project is to be built into, by what its files say."""
import json

import pytest

from services.deploys.projects.manifest import BadProject, read_project

VITE = json.dumps({"scripts": {"build": "vite build", "dev": "vite"}})


def said(**fields):
    return json.dumps(fields)


@pytest.mark.parametrize(("svc_json", "sentence"), [
    ("{", "not JSON"), ("[]", "does not hold an object"), ("[" * 100_000, "not JSON"),
    (said(output="../x"), "must stay in the project"), (said(output="/etc"), "must stay"),
    (said(output=3), "must be a path"), (said(database=False), "must be a path"),
    (said(database=""), "must be a path"), (said(build=" "), "must be a command"),
    (said(build="x" * 5000), "must be a command"), (said(start="a\0b"), "must be a command"),
])
def test_a_file_that_cannot_be_read_is_named(svc_json, sentence):
    with pytest.raises(BadProject, match=sentence):
        read_project(svc_json, None)


def test_paths_are_normalised_and_what_it_leaves_out_is_read_off_the_package():
    project = read_project(said(output="./a//b/"), VITE)
    assert (project.output, project.build, project.start) == ("a/b", "bun run build", None)


def test_that_an_app_has_no_database_is_a_word_and_not_the_want_of_one():
    for svc_json, gives_up in ((None, False), (said(), False), (said(database="a.db"), False),
                               (said(database=None), True)):
        project = read_project(svc_json, None)
        assert project.gives_up_database is gives_up, svc_json
