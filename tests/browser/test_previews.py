"""A preview in a real browser, which trusts this machine's authority and nothing else."""
from pathlib import Path

import pytest

from bin.stack.site import ROOT
from tests.browser.chromium import PROGRAM, Chromium
from tests.fakes import web_server
from tests.stack.previews import GUEST_PORT, Preview
from tests.stack.waiting import eventually

pytestmark = [pytest.mark.vm, pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")]
PICTURES = ROOT / "var" / "pictures"
ASK = "fetch('/nonce').then(answer => answer.text())"


@pytest.fixture(scope="module")
def preview(vm_stack, vm_alice):
    made = vm_alice.create(ports=[GUEST_PORT])["id"]
    vm_alice.request("PUT", f"/v1/sandboxes/{made}/uploads/web_server.py",
                     content=Path(web_server.__file__).read_bytes()).raise_for_status()
    vm_alice.exec(made, "python3", "web_server.py", str(GUEST_PORT), detached=True)
    found = Preview(vm_stack, vm_alice, made)
    assert eventually(lambda: found.get("/nonce").status_code == 200, 60)
    yield found
    found.delete()


def look(browser, preview):
    """Open the page, and see that its script works: a WebSocket echoes and events arrive."""
    assert browser.open(f"{preview.url}/") == ""
    browser.shows("Hello from the sandbox")
    browser.shows("WebSocket: over the socket")
    browser.shows("Events: event-0 event-1 event-2")


def get_nonce(browser):
    """What tells one start of the server from another."""
    return browser.run(ASK)


def test_a_page_with_a_websocket_and_events_also_from_asleep(browser, preview):
    look(browser, preview)
    assert browser.run("isSecureContext && location.protocol") == "https:"
    nonce = get_nonce(browser)
    browser.open("about:blank")
    preview.sleep()
    assert preview.status() == "hibernated"
    look(browser, preview)
    assert preview.status() == "running", "the browser alone woke it"
    assert get_nonce(browser) == nonce
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.picture(PICTURES / "preview.png")


def test_a_page_of_ours_where_nothing_listens_looks_again_by_itself(browser, preview):
    closed = Preview(preview.stack, preview.owner, preview.sandbox_id, 4000)
    assert browser.open(f"{closed.url}/") == ""
    browser.shows("Nothing answers on this port")
    preview.owner.exec(preview.sandbox_id, "python3", "web_server.py", "4000", detached=True)
    browser.shows("Hello from the sandbox")


def test_without_the_authority_it_is_refused(preview, tmp_path):
    stranger = Chromium(tmp_path, None)
    try:
        assert stranger.open(f"{preview.url}/") == "net::ERR_CERT_AUTHORITY_INVALID"
    finally:
        stranger.close()
