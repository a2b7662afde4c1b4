"""An app with a process of its own, on real guests, asked by clients and opened in a real browser:
the sandbox that built it serves it, the next version goes on with every row that was acknowledged,
and what does not work changes nothing.

The suite redeploys it once under four writers; with DATABASE_UNDER_LOAD=whole in the environment,
and `-k "first_version or next_version"`, it is four redeploys and two failing ones under eight
writers and eight readers who ask as fast as it answers, and what was seen is printed.
"""
import contextlib
import itertools
import json
import os
import signal
import sqlite3
import statistics
import time
from pathlib import Path

import httpx
import pytest

from bin.stack.site import ROOT
from config import guest_gateway
from guest.client.agent_client import AgentClient
from nodeworker.deploys import replication
from nodeworker.hypervisor.qemu.rundir import RunDir
from objects.store import ObjectStore
from services.deploys.served.replica_keys import ReplicaKey
from tests.browser.chromium import PROGRAM
from tests.clients.replicas import signed
from tests.clients.rows_load import RowsLoad
from tests.stack.database import query
from tests.stack.fault_points import fault_point
from tests.stack.waiting import becomes, until
from tests.tls.clients import client

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]
in_chromium = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")
SITE, PICTURES = Path(__file__).parent / "keeper_site", ROOT / "var" / "pictures"
# Bun with SQLite and a WebSocket; what its build leaves running is not in its way.
KEEPS = {path.name: path.read_text() for path in SITE.iterdir()}
SECRET = "sk-never-shown"
# Listens where nobody of another machine reaches it.
INWARDS = {"keeper.js": "console.log('no good'); Bun.serve({port: 3000, hostname: '127.0.0.1',"
                        " fetch: () => new Response('')});"}
# Fails to build; and fails while requests are held: it listens when it is tried, and never again.
FAILING = {
    "build": ({"build": "exit 7"}, "exit code 7"),
    "fence": ({"start": "mkdir /var/tried && exec bun keeper.js; sleep 1000",
               "database": "kept.db"}, "could not be moved")}
# What is deployed under load, how many ask, and how long each pauses (s): kinds of `FAILING`, or a
# version.
IS_WHOLE = os.environ.get("DATABASE_UNDER_LOAD") == "whole"
COURSE = ["2", "build", "3", "fence", "4", "two"] if IS_WHOLE else ["two"]
ASKERS = {"writers": 8, "readers": 8} if IS_WHOLE else {"writers": 4, "pause_s": 0.1}
# What replicates rests until a stop has waited for it.
STANDSTILL = "systemctl kill -s STOP svc-replicate;" \
             " setsid sh -c 'sleep 8; systemctl kill -s CONT svc-replicate' > /dev/null 2>&1 &"
# The whole row, but for the number that its next run gets.
ROW = "SELECT to_jsonb(app) - 'next_version' FROM deploys app WHERE slug = 'keeper'"


def snapshot(persona, editor, files):
    """Write the files of a project; returns the id of a snapshot with them."""
    persona.write(editor, files)
    taken = persona.post(f"/v1/sandboxes/{editor}/filesystem-snapshot").raise_for_status()
    return taken.json()["id"]


def live(stack):
    """Id of the sandbox that serves the app."""
    return query(stack, "SELECT live_sandbox_id FROM deploys WHERE slug = 'keeper'")[0][0]


def at_work(stack):
    """Sandboxes of the service's own that are not stopped."""
    return {row[0] for row in query(stack, "SELECT id FROM sandboxes WHERE status != 'stopped'"
                                           " AND kind IN ('builder', 'runtime')")}


@pytest.fixture(scope="module")
def app(vm_stack):
    """A client of the app, by the edge."""
    with client(vm_stack, "keeper.apps.localhost") as http:
        http.timeout = 120
        yield http


def redeploy(stack, persona, deploys, editor, kind):
    """A version of that name goes live, or a deploy of that kind fails and changes nothing."""
    svc, error = FAILING.get(kind, (None, None))
    files = {**KEEPS, "version": kind} if svc is None else {"svc.json": json.dumps(svc)}
    before, = query(stack, ROW)
    made = deploys.publish_patiently("keeper", snapshot(persona, editor, files))
    if svc is None:
        assert (made["servingVersion"], made["error"]) == (made["version"], None)
    else:
        assert error in made["error"] and query(stack, ROW) == [before]


def opened(browser, deploys, *lines):
    """Open the app's page anew, and see that it says all that."""
    browser.open_anew(deploys.get("keeper")["url"])
    for line in lines:
        browser.shows(line)


def has_rows(app, *rows):
    """Whether the app answers, with these rows among others; nginx may just have come back."""
    with contextlib.suppress(httpx.HTTPError, ValueError):
        return set(rows) <= set(app.get("/rows").json())
    return False


def kill_machine(stack, sandbox_id):
    """As it ends when its host loses power, but that the host's own files are whole."""
    record = RunDir(stack.settings.node_dir / "sandboxes" / sandbox_id).find_record()
    os.kill(record.pid, signal.SIGKILL)


def test_a_first_version_is_served_by_the_sandbox_that_built_it(
        vm_stack, vm_alice, deploys, editor, app):
    made = deploys.publish_patiently("keeper", snapshot(vm_alice, editor, {
        **KEEPS, "version": "one"}))
    assert (made["static"], made["error"], made["servingVersion"]) == (False, None, 1)
    assert at_work(vm_stack) == {live(vm_stack)}, "the builder serves it"
    until(lambda: app.get("/").status_code == 200)


@in_chromium
def test_its_page_keeps_rows_and_its_socket_echoes(deploys, app, browser):
    opened(browser, deploys, "Version one for nobody", "Kept: nothing", "Socket: one: hello")
    for number in (1, 2):
        browser.run("document.querySelector('button').click()")
        until(lambda: len(app.get("/rows").json()) == number)
    opened(browser, deploys, f"Kept: {', '.join(app.get('/rows').json())}")


@pytest.mark.timeout(3600 if IS_WHOLE else 900)
def test_the_next_version_has_every_row_that_was_acknowledged(vm_stack, vm_alice, deploys, editor,
                                                              app):
    first, before = live(vm_stack), app.get("/rows").json()
    for name, body in {"GREETING": {"value": "alice", "secret": False},
                       "API_KEY": {"value": SECRET}}.items():
        deploys.request("PUT", f"/keeper/variables/{name}", json=body).raise_for_status()
    with RowsLoad(vm_stack, "keeper.apps.localhost", len(before), **ASKERS) as load:
        until(lambda: load.acknowledged, 20)
        began = time.monotonic()
        for kind in COURSE:
            redeploy(vm_stack, vm_alice, deploys, editor, kind)
            answered = len(load.acknowledged)
            until(lambda answered=answered: len(load.acknowledged) > answered, 30)
            print(f"{kind}: {time.monotonic() - began:.0f} s, {answered} rows")
        took = time.monotonic() - began
    cuts = statistics.quantiles(load.times, n=100)
    print(f"{len(load.times) / took:.0f} requests/s, p50 {cuts[49] * 1000:.0f} p99"
          f" {cuts[98] * 1000:.0f} most {max(load.times) * 1000:.0f} ms")
    assert load.others == []
    assert sorted(app.get("/rows").json()) == sorted(before + load.acknowledged)
    said = deploys.request("GET", "/keeper/logs").raise_for_status().text
    assert "up 3000 as alice ***\n" in said and SECRET not in said
    built = deploys.log("keeper")
    assert "\nGREETING=alice\n" in built and SECRET not in built and "API_KEY" not in built
    becomes(lambda: at_work(vm_stack), {live(vm_stack)}, 60)
    assert live(vm_stack) != first


@in_chromium
def test_a_page_of_the_next_version_has_its_rows_and_wakes_it(vm_stack, deploys, app, browser):
    shown = ("Version two for alice", f"Kept: {', '.join(app.get('/rows').json())}",
             "Socket: two: hello")
    opened(browser, deploys, *shown)
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.picture(PICTURES / "keeper_site.png")
    browser.open("about:blank")

    def sleeps():
        (status,), = query(vm_stack, "UPDATE sandboxes SET idle_at = now() WHERE id = %s"
                                     " RETURNING status", live(vm_stack))
        return status == "hibernated"

    until(sleeps, 120)
    opened(browser, deploys, *shown)


def test_one_that_gives_its_key_away_reaches_what_is_its_own_and_nothing_else(app):
    told = app.get("/key").json()["dbs"][0]["replica"]
    key = ReplicaKey(told["access-key-id"], told["secret-access-key"], told["bucket"], told["path"])
    bucket, others = f"/{key.bucket}", "apps/others/v1-1/db"

    def asked(path, method="GET", **headers):
        answer = app.post("/ask", json={"url": guest_gateway.URL + path, "method": method,
                                        "headers": headers})
        return answer.raise_for_status().json()

    def asked_with_key(path, method="GET"):
        return asked(path, method, **signed(key, method, path))

    assert asked_with_key(f"{bucket}?list-type=2&prefix={key.prefix}/") == 200
    for path in (f"?list-type=2&prefix={others}/", "?list-type=2&prefix=", f"/{others}/x",
                 f"/{key.prefix.removesuffix('/db')}/files.json"):
        assert asked_with_key(bucket + path) == 403, path
    assert asked_with_key(f"{bucket}/{others}/x", "DELETE") == 403
    assert asked(f"{bucket}?list-type=2&prefix={key.prefix}/") == 403
    for path in ("/npm/", "/npm/-/npm/v1/security/audits", "/npm/%2e%2e/x", "/metrics", "/health",
                 "/v1/models"):
        assert asked(path) in (401, 404), path


def test_one_that_is_not_reached_changes_nothing_that_is_served(
        vm_stack, vm_alice, deploys, editor):
    before = query(vm_stack, ROW)
    failed = deploys.publish_patiently("keeper", snapshot(vm_alice, editor, INWARDS))
    assert "of its own machine only" in failed["error"] and "no good" in failed["error"]
    assert query(vm_stack, ROW) == before
    becomes(lambda: at_work(vm_stack), {live(vm_stack)}, 60)


def test_its_worker_is_killed_at_each_step_and_its_machine_then_and_no_row_is_lost(
        vm_stack, vm_alice, deploys, editor, app):
    """The machine once it serves: it boots from its disk."""
    assert app.post("/rows", content="before").status_code == 200
    points = ("adopted", "app_started", "ready", "prepared", "fenced", "frozen", "restored",
              "moved", "published")
    with fault_point(vm_stack) as fault:
        fault(f"deploy.{points[0]}")
        begun = deploys.publish("keeper", snapshot(vm_alice, editor, KEEPS), **{"async": True})
        for point in points[1:]:
            until(fault.reached, 300)
            fault(f"deploy.{point}")
        until(fault.reached, 300)
    becomes(lambda: deploys.get("keeper")["servingVersion"], begun["version"], 240)
    kill_machine(vm_stack, live(vm_stack))
    until(lambda: has_rows(app, "before"), 240)
    assert app.get("/").text.startswith("<!doctype html>")
    ended = query(vm_stack, "SELECT type FROM events WHERE subject = 'keeper'"
                            " ORDER BY occurred_at")
    assert [kind for kind, in ended] == [
        *["deploy.succeeded"] * 2, "deploy.failed", "deploy.succeeded"]
    becomes(lambda: at_work(vm_stack), {live(vm_stack)}, 60)
    stored = query(vm_stack, "SELECT count(*) FROM deploy_prefixes p JOIN deploys d USING (app_id)"
                             " WHERE d.slug = 'keeper' AND p.due_at IS NULL")
    assert stored == [(1,)], "what the killed attempts stored is on its way out"


def test_servers_die_while_its_database_moves_and_no_row_is_lost(vm_stack, vm_alice, deploys,
                                                                 editor, app):
    """Each at a step of its own, while the worker is held there for a moment."""
    assert app.post("/rows", content="between").status_code == 200
    victims = {"fenced": "postgres", "frozen": "s3", "restored": "redis", "moved": "edge"}
    with fault_point(vm_stack) as fault:
        fault("deploy.fenced", "sleep:0.5")
        begun = deploys.publish("keeper", snapshot(vm_alice, editor, KEEPS),
                                deployIntentId="servers die", **{"async": True})
        for point, following in itertools.pairwise((*victims, None)):
            until(fault.reached, 300)
            if following:
                fault(f"deploy.{following}", "sleep:0.5")
            vm_stack.kill(victims[point])
    vm_stack.start(*victims.values())
    becomes(lambda: deploys.get("keeper")["servingVersion"], begun["version"], 240)
    until(lambda: has_rows(app, "before", "between"))
    told = query(vm_stack, "SELECT type, body FROM events WHERE subject = 'keeper'")
    assert [kind for kind, body in told if "servers die" in body] == ["deploy.succeeded"]
    becomes(lambda: at_work(vm_stack), {live(vm_stack)}, 60)


def test_a_deleted_app_is_stopped_once_its_last_rows_are_stored(vm_stack, deploys, app, tmp_path):
    """Although what replicates them is at a standstill, and the worker is killed that has waited
    for it."""
    settings, runtime, target = vm_stack.settings, live(vm_stack), tmp_path / "kept.db"
    (prefix, port, token), = query(
        vm_stack, "SELECT prefix, agent_port, agent_token FROM relay_keys k"
                  " JOIN sandboxes s ON s.id = k.sandbox_id WHERE s.id = %s", runtime)
    AgentClient(settings.node_address, port, token).exec(shell=STANDSTILL)
    assert app.post("/rows", content="last").status_code == 200
    with fault_point(vm_stack) as fault:
        fault("stop.synced")
        deploys.remove("keeper")
        held, = query(vm_stack, "UPDATE deploy_prefixes SET due_at = now() + interval '1 hour'"
                                " WHERE %s = prefix || 'db/' RETURNING prefix", prefix)
        until(lambda: app.get("/").status_code == 404)
        until(fault.reached)
    becomes(lambda: at_work(vm_stack), set())
    becomes(lambda: query(vm_stack, "SELECT 1 FROM relay_keys WHERE sandbox_id = %s",
                          runtime), [])
    assert query(vm_stack, "SELECT * FROM retired_runtimes") == []
    assert replication.restore(settings, prefix, target)
    with contextlib.closing(sqlite3.connect(target)) as kept:
        assert ("last",) in kept.execute("SELECT name FROM rows").fetchall()
    query(vm_stack, "UPDATE deploy_prefixes SET due_at = now() WHERE prefix = %s", *held)
    becomes(lambda: list(ObjectStore(settings).list_objects(prefix)), [])
