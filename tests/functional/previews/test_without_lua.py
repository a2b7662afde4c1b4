"""Previews on a host whose nginx has no Lua, as on Ubuntu 22.04: all go through the gateway."""
import dataclasses

import pytest

from config.nginx.reload import reload
from config.nginx.render import find_nginx, render
from tests.clients.in_turn import InTurn
from tests.functional.previews.test_pages import check_names_of_more_labels
from tests.functional.previews.test_requests import ONCE

STATES = pytest.mark.parametrize("asleep", [False, True], ids=["awake", "asleep"])


@pytest.fixture(scope="module", autouse=True)
def edge_without_lua(sim_stack):
    """The edge of the stack as it is rendered for such a host."""
    reload(sim_stack.settings, dataclasses.replace(find_nginx(), lua_modules=()))
    configuration = (sim_stack.site.data_dir / "edge" / "nginx.conf").read_text()
    assert "lua" not in configuration
    yield
    reload(sim_stack.settings, find_nginx())


@STATES
def test_a_page_and_a_body(preview, asleep):
    if asleep:
        preview.sleep()
    answer = preview.get()
    assert answer.status_code == 200 and "Hello from the sandbox" in answer.text
    with preview.client() as http:
        assert http.put("/", content=bytes(5_000_000)).text == "5000000 bytes"
    assert preview.get("/chunked?n=50").text == "".join(f"{n}." for n in range(50))


def test_what_may_be_sent_twice_is_sent_again(preview):
    assert preview.get("/cut?id=got").text == "2"


@ONCE
def test_what_may_not_be_sent_twice_is_sent_once(preview, served, method):
    with preview.client() as http:
        cut = http.request(method, "/cut?id=once")
    assert cut.status_code == 503 and served.server.counts["once"] == 1


def test_a_preview_has_one_label(preview):
    check_names_of_more_labels(preview)


def test_one_host_never_answers_for_another(sim_stack, alice, served, preview, another):
    other = another.preview(sim_stack, alice)
    nonces = served.server.nonce, another.server.nonce
    try:
        with InTurn(sim_stack, (preview, other), nonces) as visits:
            for sleeper in (other, preview):
                visits.goes_on()
                sleeper.sleep()
            visits.goes_on()
        assert visits.wrong == []
        with preview.client() as first, other.client() as second:
            assert (first.get("/nonce").text, second.get("/nonce").text) == nonces
            other.delete()
            assert second.get("/").status_code in (404, 410)
            assert first.get("/nonce").text == nonces[0]
    finally:
        other.delete()


def test_an_old_nginx_is_not_asked_for_what_it_does_not_know(sim_stack):
    old = dataclasses.replace(find_nginx(), version=(1, 18, 0), lua_modules=())
    assert old.command == ["nginx"], "1.18 knows no -e"
    told = render(sim_stack.settings, old, 1024)
    assert "load_module" not in told and " ssl http2" in told and "http2 on;" not in told


def test_a_new_nginx_is_told_http2_once_for_each_server(sim_stack):
    new = dataclasses.replace(find_nginx(), version=(1, 26, 3), lua_modules=())
    servers = render(sim_stack.settings, new, 1024).split("server {")[1:]
    listening = [server for server in servers if "listen " in server]
    assert listening and all(server.count("http2 on;") == 1 for server in listening)
    assert not any(" ssl http2" in server for server in servers)
