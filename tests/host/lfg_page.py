"""The page of lfg in a Chromium, with a person's hands and eyes for it."""
import json

from tests.browser.chromium import Chromium
from tests.stack.waiting import until

# What goes wrong in the page is collected; its clock can be put ahead, and what it does now and
# then it does more often.
_WATCH = """
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
addEventListener("securitypolicyviolation",
  (event) => problems.push(`${event.violatedDirective} ${event.blockedURI}`));
const now = performance.now.bind(performance);
performance.now = () => now() + (window.ahead ?? 0);
const every = setInterval;
window.setInterval = (work, ms) => every(work, ms / 10);
window.find = (id) => document.getElementById(id);
"""
# What the server says of one type comes a second later.
_SLOW = """
const Socket = WebSocket;
window.WebSocket = class extends Socket {
  set onmessage(hear) {
    super.onmessage = (event) => String(event.data).startsWith('{"type":"%s"')
      ? setTimeout(() => hear(event), 1000) : hear(event);
  }
};
"""


class Page:
    """lfg at `origin`, opened as if nobody had been there before."""

    def __init__(self, browser: Chromium, origin: str) -> None:
        self.browser, self.run = browser, browser.run
        self.origin = origin
        browser.call("Page.enable")
        self._scripts: list[str] = []
        self._run_first(_WATCH)
        self.resize(900, 600)
        assert browser.open(f"{origin}/") == ""
        self.until(lambda: self.run("find('connection')?.innerText") == "connected")

    def problems(self) -> list[str]:
        """What went wrong in the page; it is not watched any more."""
        for script in self._scripts:
            self.browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        self.run("sessionStorage.clear(); localStorage.clear()")
        return self.run("window.problems")

    def slow_down(self, kind: str) -> None:
        """From the next load on, messages of this type are heard a second later."""
        self._run_first(_SLOW % kind)

    def _run_first(self, script: str) -> None:
        added = self.browser.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        self._scripts.append(added["identifier"])

    def until(self, holds, timeout_s: float = 30) -> None:
        until(holds, timeout_s)

    def shows(self, text: str, timeout_s: float = 30) -> None:
        self.browser.shows(text, timeout_s)

    def resize(self, width: int, height: int) -> None:
        self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                          deviceScaleFactor=1, mobile=False)

    def reload(self) -> None:
        self.run("document.title = 'old'")
        self.browser.call("Page.reload")
        self.until(lambda: self.run("document.title") not in (None, "old"))
        self.until(lambda: self.run("find('connection')?.innerText") == "connected")

    def press(self, selector: str, text: str) -> None:
        """Click what has this text, once it is there, where it is seen."""
        find = (f"[...document.querySelectorAll({json.dumps(selector)})]"
                f".find((one) => one.innerText.trim().startsWith({json.dumps(text)}))")
        self.until(lambda: self.run(f"{find}?.getBoundingClientRect().width > 0"))
        place = self.run(f"(({{ x, y, width, height }}) => [x + width / 2, y + height / 2])"
                         f"({find}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1],
                              button="left", clickCount=1)

    def move(self) -> None:
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=200, y=300)

    def key(self, key: str, code: str) -> None:
        """Press a key with Ctrl and Shift."""
        for kind in ("rawKeyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, modifiers=10)

    def focus_terminal(self) -> None:
        self.run("document.querySelector('.view:not([hidden]) textarea').focus()")

    def write(self, text: str) -> None:
        """Text into what has the focus: the terminal."""
        self.until(lambda: self.run("document.activeElement.tagName") == "TEXTAREA")
        self.browser.call("Input.insertText", text=text)

    def type(self, line: str) -> None:
        """A line, and Enter, into the terminal."""
        self.write(line)
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **enter)
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", **enter)

    def tab(self, name: str) -> str:
        """What is said of a tab."""
        return self.run(f"find('tab-{name}').getAttribute('aria-label')")

    def size(self) -> str:
        """The size of the terminal as `stty size` says it."""
        cols, _, rows = self.run("find('size').innerText").partition("×")
        return f"{rows} {cols}"
