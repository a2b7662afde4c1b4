"""Deploys of real guests: a project is built in a machine of its own and served by the real edge,
while the editor works on."""
import json

import pytest

from tests.stack.database import query
from tests.stack.fault_points import fault_point
from tests.stack.waiting import becomes, until
from tests.tls.clients import client

pytestmark = pytest.mark.vm
# A build of a project's own: its output names the version, and it takes long enough to be watched.
BUILD = {"build": "echo building $(cat version); mkdir -p dist/assets; sleep 1;"
                  " echo \"page $(cat version)\" > dist/index.html;"
                  " echo script > dist/assets/$(cat version).js; ln -s /etc/passwd dist/passwd.txt;"
                  " node -e 'console.log(1 + 1)'"}
# Says first whether anything of the editor's runs here, and then nothing for a while.
SLOW = {"build": f"pgrep -x sleep || echo alone; echo early; sleep 5; {BUILD['build']}"}


@pytest.fixture(scope="module")
def editor(vm_alice, editor):
    """As every `editor`, with a project, and something that runs in it."""
    vm_alice.write(editor, {"svc.json": json.dumps(SLOW), "version": "one"})
    vm_alice.exec(editor, "sleep", "100000", detached=True)
    return editor


def snapshot(persona, sandbox, path="snapshot"):
    return persona.post(f"/v1/sandboxes/{sandbox}/{path}").raise_for_status().json()["id"]


def no_builders(stack):
    return query(stack, "SELECT id FROM sandboxes WHERE kind = 'builder' AND status != 'stopped'"
                 ) == []


def has_ended(stack, slug):
    return query(stack, "SELECT 1 FROM deploy_runs WHERE slug = %s AND finished_at IS NULL",
                 slug) == []


def events(stack, slug):
    rows = query(stack, "SELECT type, body FROM events WHERE subject = %s ORDER BY occurred_at",
                 slug)
    return [(kind, json.loads(body)["data"]) for kind, body in rows]


def test_a_project_is_built_and_served_and_its_editor_notices_nothing(
        vm_stack, vm_alice, deploys, editor):
    before = vm_alice.get(f"/v1/sandboxes/{editor}").json()
    up = vm_alice.exec(editor, "pgrep", "-x", "sleep")["stdout"]
    deploys.publish("site", snapshot(vm_alice, editor), deployIntentId="intent 1",
                    **{"async": True})
    until(lambda: "\nalone\nearly\n" in deploys.log("site"), 200)
    assert not has_ended(vm_stack, "site"), "its log is readable while it runs"
    until(lambda: has_ended(vm_stack, "site"), 200)
    made = deploys.get("site")
    assert (made["status"], made["version"], made["servingVersion"], made["static"]) == (
        "live", 1, 1, True)
    with client(vm_stack, "site.apps.localhost") as http:
        until(lambda: http.get("/").text == "page one\n")
        assert http.get("/assets/one.js").headers["cache-control"].endswith("immutable")
        assert http.get("/passwd.txt").status_code == 404, "a link is no file of the app"
        said = deploys.log("site")
        assert "building one" in said and said.rstrip().endswith("2"), "node is Bun"
        vm_alice.write(editor, {"svc.json": json.dumps(BUILD), "version": "two"})
        # of its files alone this time
        again = deploys.publish("site", snapshot(vm_alice, editor, "filesystem-snapshot"))
        assert (again["servingVersion"], again["appId"]) == (2, made["appId"])
        until(lambda: http.get("/").text == "page two\n")
        assert http.get("/assets/one.js").status_code == 200, "of version N-1"
    assert vm_alice.get(f"/v1/sandboxes/{editor}").json() == before
    assert vm_alice.exec(editor, "pgrep", "-x", "sleep")["stdout"] == up
    becomes(lambda: no_builders(vm_stack), timeout_s=30)
    assert [kind for kind, _ in events(vm_stack, "site")] == ["deploy.succeeded"] * 2
    assert events(vm_stack, "site")[0][1]["deployIntentId"] == "intent 1"
    listed = vm_alice.get("/v1/sandboxes").json()["sandboxes"]
    assert [entry["id"] for entry in listed if entry["kind"] == "builder"] == []


def test_a_failed_deploy_changes_nothing_that_is_served(vm_stack, vm_alice, deploys, editor):
    """Nor does the death of the worker that is about to say so. What else may fail comes to the
    same, which is proven without machines (chaos/test_deploys_under_load.py)."""
    row = "SELECT status, live_version, live_epoch, live_static, updated_at FROM deploys" \
          " WHERE slug = 'site'"
    before, told = query(vm_stack, row), len(events(vm_stack, "site"))
    failing = {"build": "echo so far; echo no good >&2; exit 7"}
    vm_alice.write(editor, {"svc.json": json.dumps(failing)})
    with fault_point(vm_stack) as fault:
        fault("deploy.failing")
        failed = deploys.publish("site", snapshot(vm_alice, editor))
        assert fault.reached()
    assert "exit code 7. It said last:" in failed["error"] and failed["status"] == "live"
    assert query(vm_stack, row) == before
    (kind, data), = events(vm_stack, "site")[told:]
    assert (kind, data["error"]) == ("deploy.failed", failed["error"])
    becomes(lambda: no_builders(vm_stack), timeout_s=30)
    assert "no good" in failed["error"] and "so far" in deploys.log("site")


def test_a_project_that_says_static_and_has_a_database_is_not_served_as_files(
        vm_alice, deploys, editor):
    vm_alice.write(editor, {"svc.json": json.dumps({**BUILD, "output": "dist"})})
    vm_alice.exec(editor, "python3", "-c", "import sqlite3; db = sqlite3.connect('data.bin');"
                  " db.execute('create table t (x)'); db.commit()", cwd="/home/user")
    failed = deploys.publish("lying", snapshot(vm_alice, editor))
    vm_alice.exec(editor, "rm", "data.bin", cwd="/home/user")
    assert (failed["status"], failed["static"]) == ("failed", None)
    assert "database" in failed["error"]


def test_its_worker_is_killed_at_each_step_and_the_run_ends_in_truth(vm_stack, vm_alice, deploys,
                                                                     editor):
    vm_alice.write(editor, {"svc.json": json.dumps(BUILD), "version": "killed"})
    taken = snapshot(vm_alice, editor)
    with fault_point(vm_stack) as fault:
        fault("deploy.claimed")
        deploys.publish("killed", taken, **{"async": True})
        for point in ("builder_begun", "build_begun", "built", "prefix_kept", "stored", "staged",
                      "published"):
            until(fault.reached, 60)
            fault(f"deploy.{point}")
        until(fault.reached, 60)
    becomes(lambda: deploys.get("killed")["status"], "live")
    with client(vm_stack, "killed.apps.localhost") as http:
        until(lambda: http.get("/").text == "page killed\n")
    assert [kind for kind, _ in events(vm_stack, "killed")] == ["deploy.succeeded"]
    becomes(lambda: no_builders(vm_stack), timeout_s=30)
    stored = query(vm_stack, "SELECT count(*) FROM deploy_prefixes p JOIN deploys d USING (app_id)"
                             " WHERE d.slug = 'killed' AND p.due_at IS NULL")
    assert stored == [(1,)], "what the killed attempts stored is on its way out"


def test_a_deleted_app_is_404_at_once_and_leaves_nothing(vm_stack, deploys):
    deploys.remove("killed")
    with client(vm_stack, "killed.apps.localhost") as http:
        until(lambda: http.get("/").status_code == 404)
    assert deploys.request("GET", "/killed").status_code == 404
    assert deploys.request("DELETE", "/killed").status_code == 404
    becomes(lambda: query(vm_stack, "SELECT prefix FROM deploy_prefixes WHERE app_id NOT IN"
                                    " (SELECT app_id FROM deploys)"), [], 60)
