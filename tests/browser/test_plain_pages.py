"""A directory of plain HTML in a sandbox is deployed as it is, opened in a real browser, changed
and deployed again."""
from pathlib import Path

import pytest

from tests.browser.chromium import PROGRAM
from tests.stack.waiting import until

SITE = Path(__file__).parent / "plain_site"
FONT = "getComputedStyle(document.querySelector('h1')).fontFamily"
pytestmark = [pytest.mark.vm, pytest.mark.timeout(900),
              pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")]


def test_a_directory_of_html_is_deployed_opened_and_deployed_again(
        vm_alice, deploys, editor, browser):
    vm_alice.write(editor, {str(path.relative_to(SITE)): path.read_text()
                            for path in SITE.rglob("*") if path.is_file()})
    addresses = set()
    for version in ("one", "two"):
        page = (SITE / "index.html").read_text().replace("Page one", f"Page {version}")
        vm_alice.write(editor, {"index.html": page})
        taken = vm_alice.post(f"/v1/sandboxes/{editor}/filesystem-snapshot").raise_for_status()
        made = deploys.publish_patiently("plain", taken.json()["id"])
        assert (made["error"], made["static"]) == (None, True)
        addresses.add(made["url"])
        browser.open_static(f"{made['url']}/", f"Page {version}")
        until(lambda: browser.run(FONT) == "fantasy")  # the style sheet is applied
        browser.run("document.querySelector('a').click()")
        browser.shows("Written by hand")
        until(lambda: browser.run(f"location.pathname + {FONT}") == "/about/fantasy")
    assert deploys.log("plain") == "", "there is nothing to build"
    assert len(addresses) == 1
