"""Previews of real guests, through the real edge.

The suite takes a few sleeps under load; with PREVIEW_SLEEPS=whole in the environment they are 20,
one every two seconds.
"""
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websocket import WebSocketConnectionClosedException

from tests.fakes import web_server
from tests.stack.database import query
from tests.stack.previews import GUEST_PORT, Preview, PreviewLoad
from tests.stack.waiting import eventually

pytestmark = pytest.mark.vm
IS_WHOLE = os.environ.get("PREVIEW_SLEEPS") == "whole"
SLEEPS, EVERY_S = (20, 2.0) if IS_WHOLE else (5, 0.0)


@pytest.fixture(scope="module")
def preview(vm_stack, vm_alice):
    """A guest that serves `tests/fakes/web_server.py`; the port was never named."""
    made = vm_alice.create()["id"]
    program = Path(web_server.__file__).read_bytes()
    vm_alice.request("PUT", f"/v1/sandboxes/{made}/uploads/web_server.py",
                     content=program).raise_for_status()
    vm_alice.exec(made, "python3", "web_server.py", str(GUEST_PORT), detached=True)
    found = Preview(vm_stack, vm_alice, made)
    assert eventually(lambda: found.get("/nonce").status_code == 200, 60)
    yield found
    found.delete()


@pytest.mark.parametrize("asleep", [False, True], ids=["awake", "asleep"])
def test_everything_passes_and_the_server_is_the_one_it_was(preview, asleep):
    nonce = preview.get("/nonce").text

    def rest():
        if asleep:
            preview.sleep()
    rest()
    assert "Hello from the sandbox" in preview.get().text
    rest()
    assert preview.post("/", content=bytes(1_000_000)).text == "1000000 bytes"
    rest()
    assert preview.get("/chunked?n=50").text == "".join(f"{n}." for n in range(50))
    rest()
    assert preview.get("/events").text.split("\n\n")[:3] == [f"data: event-{n}" for n in range(3)]
    rest()
    link = preview.socket()
    link.send("from far away")
    assert link.recv() == "from far away"
    link.close()
    assert preview.get("/nonce").text == nonce, "woken, not started again"


def test_an_open_websocket_ends_when_the_sandbox_is_put_to_sleep(preview):
    link = preview.socket()
    link.send("still there?")
    assert link.recv() == "still there?"
    preview.sleep()
    link.settimeout(30)  # far less than the hour for which nginx would keep it
    with pytest.raises((ConnectionError, WebSocketConnectionClosedException)):
        link.recv()
    assert preview.status() == "hibernated"


def test_a_request_that_the_guest_has_taken_is_repeated_after_a_sleep(preview):
    """Without a word from the node nginx would wait an hour for the first answer."""
    with ThreadPoolExecutor(1) as visitor:
        answer = visitor.submit(preview.get, "/slow?s=4", timeout=60)
        time.sleep(1)
        preview.sleep()
        assert answer.result().text == "slow"
    assert preview.status() == "running"


def test_a_hundred_at_once_wake_it_once(preview, vm_stack):
    wakes = "SELECT count(*) FROM operations WHERE sandbox_id = %s AND kind = 'wake'"
    before = query(vm_stack, wakes, preview.sandbox_id)[0][0]
    preview.sleep()
    with ThreadPoolExecutor(100) as crowd:
        answers = list(crowd.map(lambda _: preview.get("/nonce").status_code, range(100)))
    assert answers == [200] * 100
    assert query(vm_stack, wakes, preview.sandbox_id) == [(before + 1,)]


def test_no_get_is_lost_and_no_post_answered_twice_when_it_is_put_to_sleep_under_load(preview):
    with PreviewLoad(preview) as load:
        began = time.monotonic()
        for number in range(SLEEPS):
            preview.sleep()
            answered = load.answered
            assert eventually(lambda: load.answered >= answered + 5, 60), "somebody wakes it"
            time.sleep(max(0.5, began + (number + 1) * EVERY_S - time.monotonic()))
        took_s = time.monotonic() - began
    assert load.failed == [] and load.answered > 10
    counts = load.counts()
    print(f"{SLEEPS} sleeps in {took_s:.1f} s: {load.answered} GETs, all answered 200;"
          f" {len(counts)} of {len(load.sent)} POSTs came, each once")
    assert max(counts.values()) == 1 and set(load.sent) >= set(counts)
