"""The database of an app goes on although its next version was built of a project without a file
of it, as when that is kept out of version control; it is given up by a word of `svc.json` alone. By
a real worker, store and restore, and a simulated guest."""
import base64
import contextlib
import json
import sqlite3

import pytest

from models.states import RunStep
from objects.store import ObjectStore
from services.deploys.apps.process_facts import APP_PORT
from tests.functional.deploys.conftest import FIRST, begin_second
from tests.stack.database import query
from tests.stack.previews import Served
from tests.stack.waiting import until

RUN = "SELECT state, error, manifest->>'database' FROM deploy_runs WHERE id = %s"
PREFIX = "SELECT due_at IS NOT NULL FROM deploy_prefixes WHERE prefix = %s"
FILE = "/v1/sandboxes/{}/files?path=/home/user/app.db"


@pytest.fixture
def build(sim_stack, alice, before, good):
    """Has version 2 built of a project without a SQLite file, whose `svc.json` says this besides;
    its sandbox, and what became of the run."""
    ObjectStore(sim_stack.settings).put_stream(f"{before.prefix}db/{FIRST}", [good])
    server, sandboxes = Served(), []

    def end(files=None, **said):
        made = alice.create(ports=[APP_PORT])["id"]
        sandboxes.append(made)
        start = {} if files else {"start": f"serve {APP_PORT} 0 {server.port}"}
        alice.write(made, {"svc.json": json.dumps({**start, **said}), **(files or {})})
        begun = begin_second(sim_stack, before, RunStep.BUILD, None, builder_sandbox_id=made,
                             manifest=None)

        until(lambda: query(sim_stack, RUN, begun)[0][0] in ("succeeded", "failed"))
        return made, query(sim_stack, RUN, begun)[0]
    yield end
    for each in sandboxes:
        alice.delete(f"/v1/sandboxes/{each}")
    server.close()


def is_due(stack, before):
    return query(stack, PREFIX, before.prefix) != [(False,)]


def test_a_project_without_its_file_goes_on_with_it(sim_stack, alice, before, build, tmp_path):
    made, ended = build()
    assert ended == ("succeeded", None, "app.db")
    answer = alice.get(FILE.format(made)).raise_for_status()
    path = tmp_path / "app.db"
    path.write_bytes(base64.b64decode(answer.json()["content"]))
    with contextlib.closing(sqlite3.connect(path)) as rows:
        assert rows.execute("SELECT x FROM t").fetchall() == [(7,)]


def test_files_alone_do_not_take_its_place(sim_stack, before, build):
    _, (state, error, _) = build({"index.html": "<p>"})
    assert state == "failed" and "its database in app.db" in error
    assert not is_due(sim_stack, before)


@pytest.mark.parametrize("files", [None, {"index.html": "<p>"}], ids=["a process", "files alone"])
def test_a_word_gives_it_up(sim_stack, alice, before, build, files):
    made, ended = build(files, database=None)
    assert ended == ("succeeded", None, None)
    assert is_due(sim_stack, before)
    assert not alice.get(FILE.format(made)).is_success
