"""Deploys that succeed and deploys that fail while a static app and one with a database are asked
for pages all the time: no request fails, nobody gets an older version than N-1, nor one that is
older than what he has seen, and what fails changes no row.

Real workers, servers and edge, simulated guests; `tests/browser/test_served_apps.py` has the rows
of a database. The suite takes `SHORT`; with DEPLOYS_UNDER_LOAD=whole in the environment it is 20
deploys and 10 failing ones at 200 requests/s, and prints what was seen.
"""
import contextlib
import json
import os
import statistics
import time
from collections import Counter

import httpx
import pytest

from objects.store import ObjectStore
from services.deploys import version_prefixes
from tests.clients.deploys import Deploys
from tests.clients.load import Load
from tests.clients.projects import served_by, snapshot, static_site
from tests.stack.database import query
from tests.stack.previews import Served
from tests.stack.waiting import until
from tests.tls.clients import client

pytestmark = pytest.mark.timeout(900)
SITE, SHOP = "busy-site", "busy-shop"
SQLITE = "SQLite format 3\0"
# What is deployed to which app: kinds of `FAILING`, or True for a version that goes live.
SHORT = [(SITE, True), (SITE, "build"), (SITE, "output"), (SITE, "garbage"), (SHOP, True),
         (SHOP, "restore"), (SITE, True)]
WHOLE = [
    *[(SITE, True)] * 3, (SITE, "build"), (SHOP, True), (SHOP, "build"), *[(SITE, True)] * 3,
    (SITE, "manifest"), *[(SHOP, True)] * 2, (SHOP, "restore"), (SITE, "output"),
    *[(SITE, True)] * 2, (SITE, "names"), (SHOP, True), (SHOP, "port"), *[(SITE, True)] * 3,
    (SITE, "store"), (SHOP, True), (SITE, "garbage"), *[(SITE, True)] * 2, (SHOP, True),
    (SITE, "build"), (SITE, True)]
IS_WHOLE = os.environ.get("DEPLOYS_UNDER_LOAD") == "whole"
COURSE, PER_S = (WHOLE, 200) if IS_WHOLE else (SHORT, 50)
# Project and what its error says; of the last three the store does not take or give what it
# should.
FAILING = {
    "build": (static_site("none", "false"), "exit code 1"),
    "manifest": ({**static_site("none"), "data.bin": SQLITE}, "needs a start command"),
    "output": ({"svc.json": json.dumps({"output": "nothing"})}, "no index.html in nothing"),
    "garbage": ({"svc.json": "{"}, "svc.json is not JSON"),
    "port": ({"svc.json": json.dumps({"start": "true"})},
             "Nothing accepted connections on port 3000"),
    "names": ({**static_site("none"), "dist/a": "", "dist/a/b": ""}, "could not be finished"),
    "store": (static_site("none"), "could not be finished"),
    "restore": (served_by(1, database="kept.db"), "could not be restored"),
}
RUN = "FROM deploy_runs WHERE app_id = %s AND version = %s"
ROW = "SELECT to_jsonb(app) - 'next_version' FROM deploys app WHERE slug = %s"


class Visitors(Load):
    """People who each ask one app for something now and then, together `per_s` times a second.

    `live` is what is known to be live, app -> number of the version. `wrong` says which answers
    were none, or of an older version than before or than N-1; `posted` are ids that the app with a
    process has acknowledged."""

    def __init__(self, stack, versions, per_s, each=8):
        self.stack, self.versions = stack, versions
        self.live = dict.fromkeys((SITE, SHOP), 0)
        self.wrong, self.times, self.posted, self.seen = [], [], [], Counter()
        # Each visit is two requests, and there are two kinds of visitors.
        self._pause_s = 4 * each / per_s
        super().__init__(*[lambda: self._visit(SITE, self._site)] * each,
                         *[lambda: self._visit(SHOP, self._shop)] * each)

    def _visit(self, slug, visit):
        last, due = 0, time.monotonic()
        with client(self.stack, f"{slug}.apps.localhost") as http:
            while not self.ends.wait(max(0, due - time.monotonic())):
                due = max(due + self._pause_s, time.monotonic() - 1)
                least = max(last, self.live[slug] - 1)
                try:
                    last = visit(http)
                except (httpx.HTTPError, KeyError) as error:
                    self.wrong.append((slug, repr(error)))
                    continue
                self.seen[slug, last] += 1
                if last < least:
                    self.wrong.append((slug, f"version {last} after {least}"))

    def _site(self, http):
        """The page, and the script that it names."""
        page = self._ask(http, "GET", "/").text
        self._ask(http, "GET", f"/assets/{page}.js")
        return int(page)

    def _shop(self, http):
        name = f"{id(http)}-{time.monotonic_ns()}"
        self._ask(http, "POST", f"/?id={name}", content=b"x")
        self.posted.append(name)
        return self.versions[self._ask(http, "GET", "/nonce").text]

    def _ask(self, http, method, path, **options):
        began = time.monotonic()
        answer = http.request(method, path, **options)
        self.times.append(time.monotonic() - began)
        return answer.raise_for_status()


@pytest.fixture(scope="module")
def shops():
    """A server for each version of the app with a process."""
    made = [Served() for each in COURSE if each == (SHOP, True)]
    made.append(Served())
    yield made
    for server in made:
        server.close()


@pytest.fixture(scope="module")
def good(alice, shops):
    """Snapshots of the versions that go live, by app, in order."""
    sites = range(1 + COURSE.count((SITE, True)))
    return {SITE: [snapshot(alice, static_site(str(number))) for number in sites],
            SHOP: [snapshot(alice, served_by(server.port, database="kept.db")) for server in shops]}


@pytest.fixture(scope="module")
def failing(alice):
    return {kind: snapshot(alice, FAILING[kind][0]) for _, kind in COURSE if kind in FAILING}


@contextlib.contextmanager
def without_store(stack, slug):
    """Nothing can be stored."""
    stack.stop("s3")
    yield "StoreUnavailable"
    stack.start("s3")


@contextlib.contextmanager
def with_broken_database(stack, slug):
    """What the live version of the app has stored makes no database."""
    row, = query(stack, "SELECT app_id, live_version, live_epoch FROM deploys WHERE slug = %s",
                 slug)
    store = ObjectStore(stack.settings)
    prefix = version_prefixes.database_prefix(version_prefixes.prefix_of(*row))
    store.put_stream(f"{prefix}0000/{1:016x}-{1:016x}.ltx", [b"no such thing"])
    yield "ReplicaBroken"
    store.remove_all(prefix)


HINDERED = {"store": without_store, "restore": with_broken_database,
            "names": lambda *_: contextlib.nullcontext("StoreUnavailable")}


def fail(stack, deploys, slug, kind, snapshot_id):
    """A deploy that comes to nothing, and changes nothing."""
    before = query(stack, ROW, slug)
    hinder = HINDERED.get(kind, lambda *_: contextlib.nullcontext())
    with hinder(stack, slug) as hindrance:
        begun = deploys.publish(slug, snapshot_id, **{"async": True})
        run = (begun["appId"], begun["version"])
        if hindrance:
            until(lambda: query(stack, f"SELECT 1 {RUN} AND operator_error LIKE %s", *run,
                                f"{hindrance}%"))
            # as if it had been tried for a minute
            query(stack, "UPDATE deploy_runs SET attempts = 100 WHERE app_id = %s"
                         " AND version = %s", *run)
        until(lambda: query(stack, f"SELECT 1 {RUN} AND finished_at IS NOT NULL", *run), 90)
    assert FAILING[kind][1] in deploys.get(slug)["error"]
    assert query(stack, ROW, slug) == before


def test_no_request_fails_and_nothing_older_than_n_1_is_seen(
        sim_stack, alice, shops, good, failing):
    deploys = Deploys(sim_stack, alice)
    for slug in (SITE, SHOP):
        assert deploys.publish(slug, good[slug][0])["error"] is None
        with client(sim_stack, f"{slug}.apps.localhost") as http:
            until(lambda http=http: http.get("/").status_code == 200, 20)
    numbers = {server.server.nonce: number for number, server in enumerate(shops)}
    with Visitors(sim_stack, numbers, PER_S) as load:
        began = time.monotonic()
        for slug, kind in COURSE:
            if kind is not True:
                fail(sim_stack, deploys, slug, kind, failing[kind])
                continue
            made = deploys.publish(slug, good[slug][load.live[slug] + 1])
            assert made["error"] is None, made
            load.live[slug] += 1
            before = load.seen[slug, load.live[slug]]
            until(lambda slug=slug, before=before: load.seen[slug, load.live[slug]] > before, 30)
        took = time.monotonic() - began
    cuts = statistics.quantiles(load.times, n=100)
    print(f"{len(COURSE)} deploys in {took:.0f} s, {len(load.times)} requests,"
          f" {len(load.times) / took:.0f}/s, p50 {cuts[49] * 1000:.1f} p99 {cuts[98] * 1000:.1f}"
          f" most {max(load.times) * 1000:.0f} ms; {sorted(load.seen.items())}")
    assert load.wrong == []
    counts = sum((server.server.counts for server in shops), Counter())
    assert [name for name in load.posted if counts[name] != 1] == []
    assert len(load.posted) > 20
    ended = Counter(kind for kind, in query(
        sim_stack, "SELECT type FROM events WHERE subject = ANY(%s)", [SITE, SHOP]))
    failed = sum(kind is not True for _, kind in COURSE)
    assert ended == {"deploy.succeeded": len(COURSE) - failed + 2, "deploy.failed": failed}
    for slug in (SITE, SHOP):
        deploys.remove(slug)
