"""Served apps while what serves them is killed, and on a host whose nginx has no Lua."""
import dataclasses
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from config.nginx.reload import reload
from config.nginx.render import find_nginx
from config.nginx.workers import workers_of
from services.deploys import drained_sandboxes
from tests.functional.deploys.conftest import HOST, drained_with_its_answer, post_count
from tests.rows import served_apps
from tests.stack.previews import PreviewLoad
from tests.stack.waiting import until
from tests.tls.clients import client, connect

# What an edge was told counts for 5 s; then nothing is in flight there that nobody knows of.
QUIET_S = 30
# A worker hears every second where apps are, and ends then if it is to.
HEARD_S = 2.5


class App:
    """What a load asks: clients of the app."""

    def __init__(self, stack):
        self.stack = stack

    def client(self):
        return client(self.stack, HOST)

    def get(self, path):
        with self.client() as http:
            return http.get(path)


def go_back_and_forth(versions, times):
    """Flips, each after the drain of the sandbox before it."""
    for number in range(times):
        old = served_apps.fence("kiosk", 30)
        until(lambda old=old: drained_sandboxes.is_drained(old), QUIET_S)
        served_apps.go_live("kiosk", versions[(number + 1) % 2].sandbox_id)
        until(lambda old=old: drained_sandboxes.is_drained(old), QUIET_S)


def test_flips_under_load_fail_no_request_and_lose_none(shop, sim_stack, versions):
    load = PreviewLoad(App(sim_stack), gets=4, posts=3)
    with load:
        go_back_and_forth(versions, 6)
    assert load.failed == [] and load.answered > 20 and len(load.sent) > 20
    counts = [each.get("/counts").json() for each in versions]
    assert all(counts[0].get(name, 0) + counts[1].get(name, 0) == 1 for name in load.sent)


@pytest.mark.slow
def test_a_gateway_that_is_killed_is_not_missed_and_drains_are_told_again(
        shop, sim_stack, versions):
    time.sleep(HEARD_S)  # until then the app is served by way of the gateway
    load = PreviewLoad(App(sim_stack), gets=3, posts=0)
    with load:
        sim_stack.kill("gateway")
        old = served_apps.fence("kiosk", 60)
        until(lambda: drained_sandboxes.is_drained(old), QUIET_S)
        served_apps.go_live("kiosk", versions[1].sandbox_id)
        until(lambda: shop.get("/nonce").text == versions[1].get("/nonce").text)
    assert load.failed == []


@pytest.mark.slow
def test_a_killed_worker_of_nginx_leaves_nothing_in_flight(shop, sim_stack, versions):
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(App(sim_stack).get, "/slow?s=60&id=slow")
        until(lambda: post_count(versions[0], "slow") == "1")
        for entry in workers_of(sim_stack.supervisor.pid("edge")):
            os.kill(int(entry.name), signal.SIGKILL)
        assert slow.exception() is not None
        old = served_apps.fence("kiosk", 60)
        until(lambda: drained_sandboxes.is_drained(old), QUIET_S)
        served_apps.open_fence("kiosk")
    assert App(sim_stack).get("/nonce").status_code == 200


@pytest.mark.slow
def test_what_a_worker_holds_that_is_to_end_goes_on_with_the_fence(shop, sim_stack):
    """As those of a configuration that was loaded again, and of a master that was killed."""
    sandbox = served_apps.fence("kiosk", 60)
    until(lambda: drained_sandboxes.is_drained(sandbox), QUIET_S)
    with ThreadPoolExecutor(2) as others:
        held = others.submit(App(sim_stack).get, "/nonce")
        time.sleep(1)
        reload(sim_stack.settings, find_nginx())
        time.sleep(2)
        assert not held.done()
        served_apps.open_fence("kiosk")
        slow = others.submit(App(sim_stack).get, "/slow?s=4")
        assert held.result().status_code == 200
        assert not slow.done(), "it did not wait for its time to run out"
        assert slow.result().text == "slow"


@pytest.mark.slow
def test_what_a_worker_owes_that_is_to_end_counts_although_its_gateway_was_killed(
        shop, sim_stack, versions):
    """The next gateway says nothing for 5 s and then what it knows."""
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(App(sim_stack).get, "/slow?s=20&id=owed")
        until(lambda: post_count(versions[0], "owed") == "1")
        reload(sim_stack.settings, find_nginx())
        sim_stack.kill("gateway")
        sandbox = served_apps.fence("kiosk", 60)
        drained_with_its_answer(sandbox, slow)
        assert slow.result().text == "slow"
    served_apps.open_fence("kiosk")


@pytest.mark.slow
def test_what_comes_late_to_a_worker_that_is_to_end_counts(shop, sim_stack, versions):
    """It has an open connection, without a request as yet, and is told nothing any more."""
    with connect(sim_stack, HOST) as link, ThreadPoolExecutor(1) as other:
        reload(sim_stack.settings, find_nginx())
        time.sleep(HEARD_S)
        link.sendall(f"GET /slow?s=12&id=late HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        until(lambda: post_count(versions[0], "late") == "1")
        slow = other.submit(link.recv, 65536)
        drained_with_its_answer(served_apps.fence("kiosk", 60), slow)
        assert slow.result().startswith(b"HTTP/1.1 200 ")
    served_apps.open_fence("kiosk")


@pytest.fixture
def edge_without_lua(sim_stack):
    """The edge of the stack as it is rendered for such a host."""
    reload(sim_stack.settings, dataclasses.replace(find_nginx(), lua_modules=()))
    yield
    reload(sim_stack.settings, find_nginx())


@pytest.mark.slow
def test_without_lua_the_gateway_holds_counts_and_wakes(
        edge_without_lua, shop, sim_stack, versions):
    nonce = versions[1].get("/nonce").text
    with ThreadPoolExecutor(21) as crowd:
        slow = crowd.submit(App(sim_stack).get, "/slow?s=3&id=slow")
        until(lambda: post_count(versions[0], "slow") == "1")
        old = served_apps.fence("kiosk", 30)
        answers = [crowd.submit(App(sim_stack).get, "/nonce") for _ in range(20)]
        assert slow.result().text == "slow"
        until(lambda: drained_sandboxes.is_drained(old), QUIET_S)
        time.sleep(0.5)
        served_apps.go_live("kiosk", versions[1].sandbox_id)
        # one that came before the gateway had heard of the fence is answered by version 1
        before = versions[0].get("/nonce").text
        assert {answer.result().text for answer in answers} <= {nonce, before}
    versions[1].sleep()
    assert shop.get("/nonce").text == nonce
    assert shop.post("/x", content=b"body").text == "body"
