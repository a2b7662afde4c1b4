"""What a visitor sees where no server of the sandbox answers: pages for people, JSON for
programs."""
import re

import pytest

from tests.stack.previews import GUEST_PORT, Preview
from tests.tls.clients import client

JSON = {"Accept": "application/json"}
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"}


def check(http, status, words):
    page = http.get("/", headers=BROWSER)
    assert page.status_code == status and words in page.text
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    told = http.get("/some/path?x=1", headers=JSON)
    assert told.status_code == status and set(told.json()) == {"error"}
    assert page.headers["Cache-Control"] == told.headers["Cache-Control"] == "no-store"
    empty = http.head("/")
    assert empty.status_code == status and empty.content == b""
    posted = http.post("/", content=b"x" * 300_000, headers=JSON)
    assert posted.status_code == status, "also to a body that nobody reads"
    return page


@pytest.mark.parametrize("label", ["a" * 26 + "-3000", "some-3000", "x", "a" * 26 + "-99999999"])
def test_an_address_that_does_not_exist(sim_stack, label):
    with client(sim_stack, f"{label}.preview.localhost") as http:
        check(http, 404, "no preview at this address")


def check_names_of_more_labels(preview):
    label, _, domain = preview.host.partition(".")
    with preview.client() as http:
        assert http.get("/nonce").status_code == 200
        for name in (f"{label}.n1.{domain}", f"n1.{preview.host}", f"{label}.{preview.host}"):
            http.headers["Host"] = name
            check(http, 404, "no preview at this address")


def test_a_preview_has_one_label(preview):
    check_names_of_more_labels(preview)


def test_a_sandbox_that_was_deleted(preview):
    assert preview.get("/nonce").status_code == 200
    preview.delete()
    with preview.client() as http:
        check(http, 410, "will not come back")


def test_a_port_on_which_nothing_listens(sim_stack, alice):
    made = alice.create(ports=[GUEST_PORT])["id"]
    with Preview(sim_stack, alice, made).client() as http:
        page = check(http, 502, "Nothing answers on this port")
    assert made not in page.text and not re.search(r"\d+\.\d+\.\d+\.\d+:\d+", page.text)
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.mark.slow
def test_a_node_that_does_not_wake_it(preview, sim_stack):
    preview.sleep()
    sim_stack.stop("node-ops")
    try:
        with preview.client() as http:
            answer = http.get("/", headers=BROWSER)
        assert answer.status_code == 503 and answer.headers["Retry-After"] == "3"
        assert 'http-equiv="refresh"' in answer.text
    finally:
        sim_stack.start("node-ops")
        sim_stack.wait_healthy()
    assert preview.get("/nonce").status_code == 200
