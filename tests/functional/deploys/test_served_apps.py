"""What nginx answers for an app that a sandbox serves, while it is deployed, asleep, or gone
(contract, Deploy rules 5, 7)."""
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import websocket

from services.deploys import drained_sandboxes
from services.protocols import Deps
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue
from tests.functional.deploys.conftest import HOST, drained_with_its_answer, post_count
from tests.rows import served_apps, static_apps
from tests.stack.waiting import becomes, until
from tests.tls.clients import client, context_of

SERVED_PATHS = ("/nonce", "/assets/none", "/assets/none.js", "/none.html", "/none.gz")
JSON = {"Accept": "application/json"}
NOBODY = {"error": "There is no app at this address."}
HEARD_S = 2.5


def test_requests_reach_the_sandbox_that_serves_it(shop, sim_stack):
    assert "Hello from the sandbox" in shop.get("/").text
    assert shop.post("/any?id=one", content=b"text").text == "text"
    assert shop.put("/assets/x.js", content=b"y" * 100).text == "y" * 100
    seen = shop.get("/headers", headers={"X-Edge-App": "other", "X-Edge-Host": "other"}).json()
    assert seen["X-Edge-App"] == "kiosk" and "X-Edge-Host" not in seen
    name = f"{HOST}:{sim_stack.settings.edge_port}"
    assert (seen["Host"], seen["X-Forwarded-Host"]) == (name, name)
    assert seen["X-Forwarded-Proto"] == "https"
    # neither media type nor status is touched
    answer = shop.get("/nowhere")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain")


@pytest.mark.parametrize("path", ["/", "/any", "/assets/x.js", "/data.json", "/_app/index"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_every_method_reaches_it_by_its_own_path(shop, method, path):
    name = f"{method}{path}".replace("/", ".")
    assert shop.request(method, f"{path}?id={name}").status_code == 200
    assert post_count(shop, name) == "1"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "MOVE"])
def test_what_may_not_be_sent_twice_is_sent_once(shop, method):
    """Although nobody has answered."""
    cut = shop.request(method, f"/cut?id=cut-{method}")
    assert cut.status_code == 503 and post_count(shop, f"cut-{method}") == "1"


def test_asleep_a_request_wakes_it(shop, versions):
    versions[0].sleep()
    assert shop.get("/nonce").status_code == 200
    assert versions[0].status() == "running"
    versions[0].sleep()
    assert shop.post("/x?id=asleep", content=b"whole").text == "whole"
    assert post_count(shop, "asleep") == "1"


@pytest.mark.parametrize("version", ["1.1", "1.2", "1.01", "2.0"])
def test_one_that_keeps_its_connection_gets_no_request_for_another(shop, versions, version):
    """Whatever version it answers with after it was woken. Both requests are of one connection, and
    so of one worker of nginx; it has heard that the app sleeps."""
    versions[0].sleep()
    time.sleep(HEARD_S)
    assert shop.get(f"/nonce?version=HTTP/{version}").status_code == 200
    answer = shop.get("/nonce", headers={"Host": "nobody.apps.localhost", **JSON})
    assert (answer.status_code, answer.json()) == (404, NOBODY)


def test_who_asks_for_a_preview_cannot_name_an_app(versions, shop):
    seen = versions[1].get("/headers", headers={"X-Edge-App": "kiosk"}).json()
    assert "X-Edge-App" not in seen


@pytest.mark.slow
def test_two_hundred_at_once_are_held_by_a_fence_and_none_is_lost(shop, sim_stack, versions):
    old, new = versions
    before, after = old.get("/nonce").text, new.get("/nonce").text
    sandbox = served_apps.fence("kiosk", 30)
    until(lambda: drained_sandboxes.is_drained(sandbox))
    with ThreadPoolExecutor(200) as crowd:
        def visit(number):
            with client(sim_stack, HOST) as http:
                if number % 2:
                    return http.post(f"/n?id=held-{number}", content=b"x").status_code
                return http.get("/nonce").text
        answers = [crowd.submit(visit, number) for number in range(200)]
        time.sleep(3)
        assert not any(answer.done() for answer in answers), "they are held"
        assert drained_sandboxes.is_drained(sandbox), "and not in flight"
        served_apps.go_live("kiosk", new.sandbox_id)
        found = [answer.result() for answer in answers]
    assert found == [200 if number % 2 else after for number in range(200)] and before != after
    assert [post_count(new, f"held-{number}") for number in (1, 99, 199)] == ["1"] * 3


@pytest.mark.slow
def test_when_a_fence_is_lifted_or_over_requests_go_to_what_is_live(shop, versions):
    nonce = shop.get("/nonce").text
    sandbox = served_apps.fence("kiosk", 30)
    until(lambda: drained_sandboxes.is_drained(sandbox))
    with ThreadPoolExecutor(1) as other:
        answer = other.submit(shop.get, "/nonce")
        time.sleep(1)
        assert not answer.done()
        served_apps.open_fence("kiosk")
        assert answer.result().text == nonce
    sandbox = served_apps.fence("kiosk", 8)
    until(lambda: drained_sandboxes.is_drained(sandbox))
    assert shop.get("/nonce").text == nonce, "it has run out"


@pytest.mark.slow
def test_drained_only_after_the_last_answer_and_a_websocket_does_not_count(
        shop, sim_stack, versions):
    port = sim_stack.settings.edge_port
    link = websocket.create_connection(
        f"wss://127.0.0.1:{port}/socket", host=f"{HOST}:{port}", timeout=60,
        sslopt={"context": context_of(sim_stack), "server_hostname": HOST})
    link.send("one")
    assert link.recv() == "one"
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(shop.get, "/slow?s=4&id=slow")
        until(lambda: post_count(versions[0], "slow") == "1")
        sandbox = served_apps.fence("kiosk", 30)
        drained_with_its_answer(sandbox, slow)
        assert slow.result().text == "slow"
    link.send("two")
    assert link.recv() == "two", "it goes on"
    served_apps.open_fence("kiosk")
    link.close()


def test_a_deleted_app_is_404_and_one_that_was_never_there(shop, sim_stack):
    served_apps.take_away("kiosk")
    becomes(lambda: shop.get("/", headers=JSON).status_code, 404)
    assert shop.get("/", headers=JSON).json() == NOBODY
    with client(sim_stack, "nobody.apps.localhost") as http:
        assert http.get("/").status_code == 404
        assert http.post("/", content=b"x" * 100_000).status_code == 404


def test_an_app_becomes_static_and_served_again_without_a_failure(shop, sim_stack, versions):
    deps = Deps(sim_stack.settings, ListQueue(), no_guest)
    nonce, seen, ended = shop.get("/nonce").text, [], []

    def visit():
        with client(sim_stack, HOST) as http:
            while not ended:
                answer = http.get("/nonce")
                seen.append((answer.status_code, answer.text))

    with ThreadPoolExecutor(2) as crowd:
        visitors = [crowd.submit(visit) for _ in range(2)]
        try:
            static_apps.publish(deps, "kiosk", {"index.html": "files", "nonce": "files"})
            until(lambda: shop.get("/nonce").text == "files")
            served_apps.go_live("kiosk", versions[0].sandbox_id)
            until(lambda: shop.get("/nonce").text == nonce)
        finally:
            ended.append(True)
        assert [visitor.result() for visitor in visitors] == [None, None]
    assert set(seen) == {(200, nonce), (200, "files")}


@pytest.fixture
def files_of_kiosk(sim_stack):
    """A directory of a static app beside those that are served; nobody else changes them."""
    sim_stack.stop("releases")
    root = sim_stack.site.data_dir / "releases"
    aside = root / ".aside"
    (aside / "live" / "cur").mkdir(parents=True)
    (aside / "live" / "cur" / "index.html").write_text("files")
    yield aside, root / "kiosk"
    sim_stack.run(f"rm -rf {aside} {root}/kiosk")
    sim_stack.start("releases")


def test_whenever_files_go_the_sandbox_is_asked_for_what_the_client_asked_for(
        shop, sim_stack, versions, files_of_kiosk):
    """Also between two looks of nginx at them, which thousands of changes meet; once they are gone
    they stay so for as long as any request that has seen them."""
    aside, live = files_of_kiosk
    nonce, ended, answered = shop.get("/nonce").text, [], [0, 0]

    def visit(number):
        seen = Counter()
        with client(sim_stack, HOST) as http:
            while not ended:
                for path in SERVED_PATHS:
                    answer = http.get(path, headers={"Accept": "text/html"})
                    seen[path, answer.status_code, answer.text] += 1
                    answered[number] += 1
        return seen

    with ThreadPoolExecutor(2) as crowd:
        visitors = [crowd.submit(visit, number) for number in range(2)]
        try:
            end = time.monotonic() + 8
            while time.monotonic() < end:
                os.rename(aside, live)
                time.sleep(0.0003)
                os.rename(live, aside)
                before = list(answered)
                while not all(map(int.__gt__, answered, before)) and time.monotonic() < end:
                    time.sleep(0.0003)
        finally:
            ended.append(True)
        seen = sum((visitor.result() for visitor in visitors), Counter())
    assert set(seen) == {(path, 200, "files") for path in SERVED_PATHS} | {
        ("/nonce", 200, nonce),
        *((path, 404, f"nothing at {path}") for path in SERVED_PATHS[1:])}
