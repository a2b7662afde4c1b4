"""Chromium without a window, driven over the DevTools protocol, with a home of its own that trusts
one authority."""
import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import websocket

from tests.browser import deaf
from tests.stack.waiting import until

# Not from a snap, which sees no directory of ours; on Ubuntu there is no other.
PROGRAM = shutil.which("chromium", path="/usr/local/bin:/usr/bin")
# Without these it looks for its maker's hosts at every start.
_QUIET = ("--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync")


# What is asked of a page that is left at this moment.
_LEFT = ("Inspected target navigated or closed", "Execution context was destroyed.")


class Chromium:
    """A browser with one page. `home` is an empty directory, `authority` a certificate's file, if
    it is to trust one."""

    def __init__(self, home: Path, authority: Path | None):
        store = home / ".pki" / "nssdb"
        store.mkdir(parents=True)
        _certutil(store, "-N", "--empty-password")
        if authority is not None:
            _certutil(store, "-A", "-t", "C,,", "-n", "svc", "-i", str(authority))
        self._profile = profile = home / "profile"
        self._process = subprocess.Popen(
            [sys.executable, deaf.__file__, PROGRAM or "chromium",
             "--headless", "--no-sandbox", "--disable-gpu", *_QUIET,
             "--window-size=900,440", "--remote-debugging-port=0", f"--user-data-dir={profile}",
             "about:blank"],
            env={**os.environ, "HOME": str(home)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        active = profile / "DevToolsActivePort"
        until(lambda: active.exists() and active.read_text().strip(), 60)
        port = active.read_text().split()[0]
        pages = httpx.get(f"http://127.0.0.1:{port}/json", trust_env=False, timeout=30).json()
        address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self._link = websocket.create_connection(address, timeout=120, suppress_origin=True)
        self._numbers = itertools.count(1)

    def call(self, method, **parameters):
        """The result of a command of the protocol."""
        answer = self._answer(method, parameters)
        assert "error" not in answer, answer
        return answer["result"]

    def _answer(self, method, parameters):
        number = next(self._numbers)
        self._link.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._link.recv())
            if answer.get("id") == number:
                return answer

    def open(self, url):
        """Go to an address, as if somebody had typed it; why it failed, empty if it did not."""
        return self.call("Page.navigate", url=url).get("errorText", "")

    def open_anew(self, url):
        """Go to an address whose page the browser may have kept."""
        self.call("Network.clearBrowserCache")
        assert self.open(url) == ""

    def open_static(self, url, text):
        """Go to the page of a static version that has just gone live, and return once it shows
        `text`. The edge follows the row a moment later, so what the browser got before is dropped
        once."""
        self.open_anew(url)
        try:
            self.shows(text, 10)
        except AssertionError:
            self.open_anew(url)
            self.shows(text)

    def run(self, script):
        """The value of an expression in the page; None if the page was left meanwhile."""
        answer = self._answer("Runtime.evaluate", {
            "expression": script, "awaitPromise": True, "returnByValue": True})
        if answer.get("error", {}).get("message") in _LEFT:
            return None
        assert "error" not in answer, answer
        return answer["result"]["result"].get("value")

    def shows(self, text, timeout_s=60):
        """Return once the page shows `text`."""
        end, seen = time.monotonic() + timeout_s, None
        while time.monotonic() < end:
            seen = self.run("document.body && document.body.innerText")
            if seen and text in seen:
                return
            time.sleep(0.1)
        raise AssertionError(f"{text!r} is not shown, but {seen!r}")

    def picture(self, path: Path):
        """Save what the window shows as a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        self._link.close()
        socket = (self._profile / "SingletonSocket").readlink()
        self._process.terminate()
        self._process.wait(30)
        shutil.rmtree(socket.parent, ignore_errors=True)  # under /tmp; it leaves it there


def _certutil(store, *arguments):
    # On a store that exists it asks the terminal, for ever.
    subprocess.run(["certutil", "-d", f"sql:{store}", *arguments], check=True, timeout=60,
                   stdin=subprocess.DEVNULL, capture_output=True)
