"""How many calls may wait at once, and which ones do."""

import pytest
from flask import Flask, g

from app.api import factory as api
from app.http import admission
from app.http.admission import DATA, LIFECYCLE, PRESET, PROMPT, STATUS, places_of
from app.http.owner_shares import Places
from app.identity.local_authority import LocalAuthority
from config.settings import Settings
from services.accounts.principals import Credential, Principal
from services.errors import Unavailable

WAIT_FOR_NOTHING = {"create", "list_page", "get", "get_usage", "extend", "fork_snapshot",
                    "remove"}
WAIT_FOR_A_ROW = {"hibernate", "wake", "delete", "snapshot", "fork_sandbox"}
RESOURCES = ("sandboxes", "lifecycle", "snapshots", "execs", "files")


@pytest.fixture(scope="module")
def of_view(tmp_path_factory):
    settings = Settings(session_secret="x", signing_keys_dir=tmp_path_factory.mktemp("keys"))
    app = api.create_app(settings, LocalAuthority(settings))
    return {rule.endpoint: admission.admission_of(app.view_functions[rule.endpoint], rule.rule)
            for rule in app.url_map.iter_rules()}


def test_each_route_is_admitted_by_what_it_waits_for(of_view):
    for endpoint, admitted in of_view.items():
        resource, _, name = endpoint.rpartition(".")
        if resource in RESOURCES:
            expected = (
                PROMPT
                if name in WAIT_FOR_NOTHING
                else LIFECYCLE if name in WAIT_FOR_A_ROW else DATA
            )
            assert admitted is expected, endpoint
    assert of_view["execs.run"] is of_view["files.write"] is of_view["files.read"] is DATA
    assert of_view["health.health"] is of_view["api_keys.create"] is PROMPT


def test_a_route_about_one_sandbox_waits_unless_it_says_otherwise():
    def view():
        """Declares nothing."""

    assert admission.admission_of(view, "/v1/sandboxes/<sandbox_id>/new") is DATA
    assert admission.admission_of(view, "/v1/new") is PROMPT


def test_the_threads_of_a_process_allow_one_sandbox_a_hundred_and_keep_some_for_short_calls():
    threads = Settings().api_threads
    places = places_of(threads)
    assert places[PRESET].capacity < places[LIFECYCLE].capacity, "they wait for minutes"
    assert places[STATUS].capacity < places[LIFECYCLE].capacity, "they may as well ask again"
    assert places[DATA].share >= 100 and places[DATA].share < places[DATA].capacity
    assert sum(held.capacity for held in places.values()) <= threads * 7 / 8


def test_one_owner_gets_its_share_and_all_together_the_capacity():
    places = Places(4, 3)
    assert [places.take("one") for _ in range(4)] == [True, True, True, False]
    assert [places.take("two") for _ in range(2)] == [True, False]
    places.give_back("one")
    assert [places.take("two"), places.take("one")] == [True, False]


def test_a_process_with_hardly_any_threads_still_takes_a_call():
    assert all(places.take("one") for places in places_of(1).values())


@pytest.fixture
def asking():
    """A request of somebody to an app that has (or has not) two places for those who wait for a
    guest, of which an owner may have one."""
    app = Flask("test")
    with app.test_request_context():
        g.principal = Principal(Credential.SERVICE, "alice", None)
        yield app


def test_who_reads_a_slow_body_has_a_place_for_that_long(asking):
    places = asking.extensions[admission._EXTENSION] = {DATA: Places(2, 1)}
    for _ in range(2):
        with admission.place_to_read(), pytest.raises(Unavailable), admission.place_to_read():
            pass
    admission.enter(DATA)
    with admission.place_to_read():
        assert not places[DATA].take("alice"), "one is enough"


def test_a_host_without_places_has_none_to_give(asking):
    with admission.place_to_read():
        admission.enter(DATA)
