"""A React site of Vite in a sandbox is deployed and opened in a real browser. Its packages come
from the registry of this host's own npm client, through the cache."""
import urllib.request
from pathlib import Path

import pytest

from bin.stack.site import ROOT
from config.processes import PROCESSES
from tests.browser.chromium import PROGRAM
from tests.stack.waiting import until

SITE = Path(__file__).parent / "react_site"
PICTURES = ROOT / "var" / "pictures"
FONT = "getComputedStyle(document.querySelector('main')).fontFamily"
pytestmark = [pytest.mark.vm, pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")]


@pytest.fixture(scope="module")
def registry(vm_stack):
    """The registry behind the cache, which this host reaches."""
    told = vm_stack.site.environ_of(PROCESSES["guest-gateway"])["SVC_NPM_REGISTRY"]
    try:
        with urllib.request.urlopen(f"{told.rstrip('/')}/react", timeout=20):
            return told
    except (OSError, ValueError) as error:
        pytest.skip(f"this host reaches no npm registry ({type(error).__name__})")


@pytest.fixture
def editor(vm_alice, editor):
    """As every `editor`, with the project."""
    vm_alice.write(editor, {str(path.relative_to(SITE)): path.read_text()
                            for path in SITE.rglob("*") if path.is_file()})
    return editor


@pytest.mark.timeout(900)
def test_a_react_site_is_deployed_and_opened(vm_alice, deploys, registry, editor, browser):
    """That a second version takes the place of the first is proven by plain pages, which need no
    build."""
    taken = vm_alice.post(f"/v1/sandboxes/{editor}/snapshot").raise_for_status().json()["id"]
    made = deploys.publish_patiently("react", taken, 400)
    assert made["servingVersion"] == made["version"], made["error"]
    assert made["static"] is True
    log = deploys.log("react")
    assert "bun install --frozen-lockfile" in log and "vite" in log
    browser.open_static(f"{made['url']}/deep/link", "Version one")
    browser.shows("/deep/link")
    browser.run("document.querySelector('button').click()")
    browser.shows("pressed 1")
    until(lambda: browser.run(FONT) == "sans-serif")  # the style sheet is applied
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.picture(PICTURES / "react_site.png")
