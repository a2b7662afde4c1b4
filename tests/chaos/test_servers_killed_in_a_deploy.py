"""kill -9 of Postgres, Redis, the object store and nginx while a deploy is at each of its steps: it
ends in truth, with one event, and leaves nothing behind.

Real workers and servers, simulated guests. A run is held for a moment at each point that it passes,
and one server is killed there, another at the next. `SHORT` are the runs of the suite; with
EVERY_SERVER_AT_EVERY_STEP=1 in the environment each server is killed at each point of each course,
once to come back at once and once to stay away longer than a lease.
"""
import contextlib
import itertools
import json
import os
import time

import httpx
import psycopg2
import pytest

from objects.store import ObjectStore
from tests.clients.load import Load
from tests.clients.projects import served_by, snapshot, static_site
from tests.stack.database import query
from tests.stack.fault_points import fault_point
from tests.stack.previews import Served
from tests.stack.waiting import becomes, until
from tests.tls.clients import client

SERVERS = ("postgres", "redis", "s3", "edge")
_BUILT = ("claimed", "builder_begun", "build_begun")
COURSES = {
    "static": (*_BUILT, "built", "prefix_kept", "stored", "staged", "published"),
    "served": (*_BUILT, "adopted", "app_started", "ready", "published"),
    "moved": (*_BUILT, "adopted", "restored", "app_started", "ready", "prepared", "fenced",
              "frozen", "moved", "published"),
    "failed": (*_BUILT, "failing"),
}
AWAY_S = 3.0
# The app that each is of; that of `moved` has a database.
APPS = {"static": "dies-static", "served": "dies-served", "moved": "dies-moved",
        "failed": "dies-static"}
# Course, which server is first, and how long each stays away.
SHORT = [("static", 1, 0), ("static", 2, 0), ("moved", 0, 0), ("failed", 1, 0)]
RUNS = list(itertools.product(COURSES, range(len(SERVERS)), (0, AWAY_S))) \
    if os.environ.get("EVERY_SERVER_AT_EVERY_STEP") else SHORT
ROW = "SELECT to_jsonb(app) - 'next_version' FROM deploys app WHERE slug = %s"


@pytest.fixture(scope="module")
def servers():
    made = {"red": Served(), "blue": Served()}
    yield made
    for server in made.values():
        server.close()


@pytest.fixture(scope="module")
def snapshots(alice, servers):
    """What is deployed: course -> two snapshots, by what their pages say."""
    return {
        "static": {name: snapshot(alice, static_site(name, "sleep 0.5")) for name in servers},
        "served": {name: snapshot(alice, served_by(server.port))
                   for name, server in servers.items()},
        "moved": {name: snapshot(alice, served_by(server.port, database="kept.db"))
                  for name, server in servers.items()},
        "failed": {"none": snapshot(alice, static_site("none", "false"))},
    }


@pytest.fixture(scope="module", autouse=True)
def apps(sim_stack, deploys, snapshots):
    """All are live already."""
    for course in {"static", *(course for course, *_ in RUNS)} - {"failed"}:
        made = deploys.publish(APPS[course], snapshots[course]["red"])
        assert made["error"] is None, made
    yield
    sim_stack.start(*SERVERS)


class Reader(Load):
    """Asks an app for its page all the while: `seen` are statuses and texts, one after the other,
    `lost` the requests that nginx did not answer."""

    def __init__(self, stack, slug, path):
        super().__init__(self._read)
        self._stack, self._slug, self._path = stack, slug, path
        self.seen, self.lost = [], 0

    def _read(self):
        while not self.ends.wait(0.05):
            try:
                with client(self._stack, f"{self._slug}.apps.localhost") as http:
                    answer = http.get(self._path)
            except httpx.HTTPError:
                self.lost += 1
                continue
            if self.seen[-1:] != [(answer.status_code, answer.text)]:
                self.seen.append((answer.status_code, answer.text))


def kill(stack, server, away_s):
    killed = stack.kill(server)
    if away_s:
        until(lambda: stack.supervisor.pid(server) not in (0, killed), 10)
        time.sleep(0.2)  # what is about to become the server heeds no signal
        stack.stop(server)
        time.sleep(away_s)
        stack.start(server)


def has_ended(stack, intent):
    with contextlib.suppress(psycopg2.OperationalError):
        return query(stack, "SELECT 1 FROM deploy_runs WHERE deploy_intent_id = %s"
                            " AND finished_at IS NOT NULL", intent) != []
    return False


def deploy_while_servers_die(stack, deploys, course, first, away_s, snapshot_id):
    """Returns the intent of the run, which has ended, and how many points it was seen at."""
    intent, seen = f"{course} {first} {away_s}", 0
    victims = itertools.islice(itertools.cycle(SERVERS), first, None)
    with fault_point(stack) as fault:
        fault(f"deploy.{COURSES[course][0]}", "sleep:0.4")
        deploys.publish(APPS[course], snapshot_id, deployIntentId=intent, **{"async": True})
        for point, following in itertools.pairwise((*COURSES[course], None)):
            until(lambda: fault.reached() or has_ended(stack, intent), 120)
            if not fault.reached():
                break  # it went on while a server was away
            seen += 1
            if following:
                fault(f"deploy.{following}", "sleep:0.4")
            server = next(victims)
            print(f"{time.strftime('%H:%M:%S')} {point} {server}")
            kill(stack, server, away_s)
    stack.start(*SERVERS)
    until(lambda: has_ended(stack, intent), 120)
    return intent, seen


@pytest.mark.parametrize(("course", "first", "away_s"), RUNS)
def test_it_ends_in_truth(sim_stack, deploys, snapshots, servers, course, first, away_s):
    slug = APPS[course]
    before, = query(sim_stack, ROW, slug)
    has_process = course in ("served", "moved")
    path = "/nonce" if has_process else "/"
    pages = {name: server.server.nonce if has_process else name
             for name, server in servers.items()}
    with Reader(sim_stack, slug, path) as reader:
        # nginx may have been the last that was killed for the run before
        until(lambda: reader.seen, 30)
        (_, was), = reader.seen
        name = next((each for each in snapshots[course] if pages.get(each) != was))
        began = time.monotonic()
        intent, seen = deploy_while_servers_die(sim_stack, deploys, course, first, away_s,
                                                snapshots[course][name])
        took = time.monotonic() - began
        wanted = was if course == "failed" else pages[name]
        until(lambda: reader.seen[-1:] == [(200, wanted)], 30)
    print(f"{took:.1f} s, {seen} points, {reader.lost} requests lost, {reader.seen}")
    told = [(kind, json.loads(body)["data"]["deployIntentId"]) for kind, body in query(
        sim_stack, "SELECT type, body FROM events WHERE subject = %s", slug)]
    ended = [kind for kind, of in told if of == intent]
    assert ended == ["deploy.failed" if course == "failed" else "deploy.succeeded"]
    if course == "failed":
        assert query(sim_stack, ROW, slug) == [before]
    assert {answer for answer in reader.seen} <= {(200, was), (200, wanted)}
    assert len(reader.seen) <= 2
    assert seen > len(COURSES[course]) // 2 or away_s, "it proves too little"


def of_apps(stack, statement, app_ids):
    """The first column of what a statement finds about these apps."""
    return {row[0] for row in query(stack, statement, list(app_ids))}


MACHINES = """
SELECT s.id FROM sandboxes s WHERE s.id IN (
    SELECT unnest(ARRAY[builder_sandbox_id, runtime_sandbox_id]) FROM deploy_runs
    WHERE app_id = ANY(%s))
"""


def test_nothing_is_left(sim_stack, deploys):
    """While the apps are live, but what they need; when they are deleted, nothing at all."""
    rows = query(sim_stack, "SELECT slug, app_id, live_sandbox_id FROM deploys"
                            " WHERE slug LIKE 'dies-%%'")
    apps = {app_id: slug for slug, app_id, _ in rows}
    serving = {sandbox for *_, sandbox in rows if sandbox}
    working = f"{MACHINES} AND s.status != 'stopped'"
    machines = of_apps(sim_stack, MACHINES, apps)
    sandboxes = sim_stack.settings.node_dir / "sandboxes"
    # A stop whose message died with Redis is announced again; requests and rows have their time.
    becomes(lambda: of_apps(sim_stack, working, apps), serving, 120)
    until(lambda: {each for each in machines if (sandboxes / each).exists()} == serving, 30)
    becomes(lambda: of_apps(sim_stack, "SELECT app_id FROM deploy_prefixes WHERE due_at IS NULL"
                                       " AND app_id = ANY(%s) GROUP BY app_id"
                                       " HAVING count(*) = 1", apps),
            {app_id for app_id, slug in apps.items() if slug != APPS["served"]})
    for slug in apps.values():
        deploys.remove(slug)
    # As if the time of version N-1 were over, and that until a removal is tried again which died
    # with a server.
    query(sim_stack, "UPDATE deploy_prefixes SET due_at = now() WHERE app_id = ANY(%s)", [*apps])
    becomes(lambda: of_apps(sim_stack, "SELECT prefix FROM deploy_prefixes WHERE app_id = ANY(%s)",
                            apps), set(), 120)
    becomes(lambda: of_apps(sim_stack, working, apps), set(), 60)
    until(lambda: not [each for each in machines if (sandboxes / each).exists()], 30)
    assert query(sim_stack, "SELECT sandbox_id FROM retired_runtimes UNION"
                            " SELECT sandbox_id FROM relay_keys") == []
    store = ObjectStore(sim_stack.settings)
    for app_id, slug in apps.items():
        prefix = f"apps/{app_id}/"
        assert list(store.list_objects(prefix)) + store.list_uploads(prefix) == []
        becomes((sim_stack.site.data_dir / "releases" / slug).exists, False)
