"""What a visitor of a preview sees when the sandbox does not answer: a page for people, JSON for
programs."""
import html
import json
from dataclasses import dataclass
from http import HTTPStatus

_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">
{refresh}<title>{title}</title>
<style>
body {{ font: 18px/1.5 system-ui, sans-serif; margin: 18vh auto; max-width: 34em; padding: 0 1em;
       color: #222; background: #fafafa }}
h1 {{ font-size: 1.4em }} small {{ color: #666 }}
@media (prefers-color-scheme: dark) {{ body {{ color: #ddd; background: #181818 }} }}
</style></head>
<body><h1>{title}</h1><p>{text}</p><small>{status} {phrase}</small>{script}</body></html>
"""
# Looks a few times whether the port is open by now, then leaves the sandbox alone, so that a
# forgotten page does not keep it awake.
_LOOK_AGAIN = """<script>
let tries = 0;
async function look() {
  const answer = await fetch(location.href, {method: "HEAD", cache: "no-store"}).catch(() => null);
  if (answer && answer.status !== 502) location.reload();
  else if (++tries < 5) setTimeout(look, 2000 * 2 ** tries);
}
setTimeout(look, 2000);
</script>"""


@dataclass(frozen=True)
class Page:
    """An answer of ours. `retry_s` tells when to ask again; the page does so by itself."""

    status: int
    title: str
    text: str
    retry_s: int | None = None
    script: str = ""

    def answer(self, *, is_head: bool = False, wants_json: bool = False) -> bytes:
        """The whole answer, after which the connection is closed."""
        kind = "application/json" if wants_json else "text/html; charset=utf-8"
        body = (json.dumps({"error": self.text}) + "\n" if wants_json else self._html()).encode()
        phrase = HTTPStatus(self.status).phrase
        retry = f"Retry-After: {self.retry_s}\r\n" if self.retry_s is not None else ""
        head = (f"HTTP/1.0 {self.status} {phrase}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n{retry}"
                "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n").encode()
        return head if is_head else head + body

    def _html(self) -> str:
        refresh = f'<meta http-equiv="refresh" content="{self.retry_s}">\n' \
            if self.retry_s is not None else ""
        return _PAGE.format(refresh=refresh, title=html.escape(self.title),
                            text=html.escape(self.text), status=self.status,
                            phrase=HTTPStatus(self.status).phrase, script=self.script)


UNKNOWN = Page(404, "Nothing here", "There is no preview at this address.")
STOPPED = Page(410, "This sandbox is gone",
               "The sandbox was deleted. What it served will not come back.")
CLOSED = Page(502, "Nothing answers on this port",
              "The sandbox runs, but nothing in it listens on this port, on an address that can be"
              " reached from outside. Start your server on 0.0.0.0, then load this page again.",
              script=_LOOK_AGAIN)
NOT_READY = Page(503, "The sandbox is starting",
                 "It takes longer than usual. This page loads again by itself.", retry_s=3)
NO_ROOM = Page(503, "The sandbox cannot be woken now",
               "There is no room for it at the moment. This page loads again by itself.",
               retry_s=15)
AWAY = Page(503, "The service is not available",
            "It should be back in a moment. This page loads again by itself.", retry_s=5)
TOO_MANY = Page(503, "Too many connections",
                "Too many requests wait for this account's sandboxes. This page loads again by"
                " itself.", retry_s=5)
CROWD = Page(503, "Too many connections",
             "Too many names of apps are asked for at the moment. This page loads again by itself.",
             retry_s=5)
TOO_LARGE = Page(431, "The request's head is too large", "A head may have 256 KiB at most.")
