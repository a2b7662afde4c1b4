"""A fetch that takes long delays nothing but its own app: the edge reports, others go live and
go. An edge of this process, over real rows and a real store; a fetch ends when the test says so."""
import dataclasses
import threading
from datetime import timedelta

import pytest

from app.releases import fetch_queue
from app.releases.__main__ import Releases
from models.database import connection, now
from models.deploys import Edge
from models.users import User
from services.deploys import app_removal
from services.deploys.edges import staging
from tests.functional.deploys.conftest import app
from tests.rows.static_apps import publish
from tests.stack.waiting import becomes, until

# More than `publish` waits for the edge.
ENDED_S = 150


@pytest.fixture
def held(monkeypatch):
    """Prefixes of the fetches that wait for `held.go_on`: those of apps named large."""
    class Held(list):
        go_on = threading.Event()

    def fetch(store, prefix, target):
        with connection():
            names = {each.prefix: each.slug for each in staging.list_coming()}
            names.update((each.live, each.slug) for each in staging.list_apps())
        if names.get(prefix, "").startswith("large"):
            found.append(prefix)
            assert found.go_on.wait(ENDED_S)
        real(store, prefix, target)

    found, real = Held(), fetch_queue.fetch
    monkeypatch.setattr(fetch_queue, "fetch", fetch)
    yield found
    found.go_on.set()


@pytest.fixture
def edge(deps, held, s3_settings, tmp_path):
    """Begins an edge whose directory is `edge.root`, and gives what publishes apps there."""
    own = {name.removeprefix("SVC_").lower(): value for name, value in s3_settings.items()}
    settings = dataclasses.replace(deps.settings, data_dir=tmp_path, **own)
    changed, ended = threading.Event(), threading.Event()
    releases, failed = Releases(settings, changed.set), []

    def rounds():
        while not ended.is_set():
            changed.clear()
            releases.catch_up()
            changed.wait(0.1)

    def one(slug, text, owner):
        try:
            publish(told, slug, {"index.html": text}, owner)
        except BaseException as error:
            failed.append(error)
            raise

    def go(slug, text, owner="alice"):
        thread = threading.Thread(target=one, args=(slug, text, owner))
        thread.start()
        threads.append(thread)
        return thread

    told, threads = dataclasses.replace(deps, settings=settings), []
    go.root, go.running = tmp_path / "releases", threading.Thread(target=rounds)
    go.running.start()
    yield go
    held.go_on.set()
    for thread in threads:
        thread.join(ENDED_S)
    ended.set()
    for thread in (*threads, go.running):
        end(thread)
    assert failed == []


def end(thread):
    thread.join(ENDED_S)
    assert not thread.is_alive()


def page(edge, slug):
    path = edge.root / slug / "live" / "cur" / "index.html"
    return path.read_text() if path.exists() else None


def seen_at():
    with connection():
        return Edge.get().heartbeat_at


def test_meanwhile_the_edge_reports_and_others_go_live_and_go(deps, edge, held):
    for slug in ("large-1", "large-2", "large-3"):
        edge(slug, "large")
    until(lambda: len(held) == fetch_queue.OF_ONE_OWNER, 20)
    began_at = now()
    for text in ("one", "two"):
        end(edge("small", text, "mallory"))
        becomes(lambda: page(edge, "small"), text, 20)
    with connection():
        mallory = User.get_by_id("mallory")
    app_removal.remove(deps, mallory, "small")
    becomes(lambda: (edge.root / "small").exists(), False, 20)
    assert seen_at() > began_at
    assert len(held) == fetch_queue.OF_ONE_OWNER, "the third waits for room"
    assert app("large-1")["live_version"] is None
    held.go_on.set()
    for slug in ("large-1", "large-2", "large-3"):
        becomes(lambda: page(edge, slug), "large", 20)
    assert not list((edge.root / ".drafts").iterdir())
    becomes(lambda: list((edge.root / ".gone").iterdir()), [], 20)


def test_an_edge_that_nobody_waited_for_goes_on_with_what_it_has(edge, held, monkeypatch):
    held.go_on.set()
    end(edge("large", "one"))
    becomes(lambda: page(edge, "large"), "one", 20)
    held.go_on.clear()
    monkeypatch.setattr(staging, "have_all", lambda prefix: True)
    for text in ("two", "three"):
        end(edge("large", text))
    later = now() + timedelta(seconds=0.5)
    until(lambda: seen_at() > later, 20)
    assert page(edge, "large") == "one", "of version N-2, until N is here"
    held.go_on.set()
    becomes(lambda: page(edge, "large"), "three", 20)
    becomes(lambda: len(list((edge.root / "large").glob("app_*"))), 2, 20)


def test_an_app_whose_link_cannot_be_changed_keeps_no_other_from_going_live(edge):
    end(edge("blocked", "one"))
    becomes(lambda: page(edge, "blocked"), "one", 20)
    in_the_way = edge.root / "blocked" / "live.new"
    in_the_way.mkdir()
    end(edge("blocked", "two"))
    for slug in ("after", "later"):
        end(edge(slug, "here"))
        becomes(lambda: page(edge, slug), "here", 20)
    assert page(edge, "blocked") == "one"
    in_the_way.rmdir()
    becomes(lambda: page(edge, "blocked"), "two", 20)
