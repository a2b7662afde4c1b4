"""Several previews asked in turn over kept connections that lead to all of them."""
import httpx

from tests.clients.load import Load
from tests.stack.waiting import until
from tests.tls.clients import client
from tests.tls.http2 import Http2

# Of one connection; the edge closes one after a thousand.
REQUESTS = 100


class InTurn(Load):
    """Asks each of `previews` for its nonce, over HTTP/1.1 and over HTTP/2, as long as the block
    runs. `nonces` are those that belong to the previews, in the same order; `wrong` are answers
    that were not one's own, `rounds` says how often all had answered."""

    def __init__(self, stack, previews, nonces):
        super().__init__(self._first, self._second)
        self._stack, self._hosts = stack, [preview.host for preview in previews]
        self._own = dict(zip(self._hosts, nonces, strict=True))
        self.wrong, self.rounds = [], {"HTTP/1.1": 0, "HTTP/2": 0}

    def goes_on(self):
        """Return once every preview has answered some times more over each kind of connection."""
        before = dict(self.rounds)
        until(lambda: all(self.rounds[version] > done + 5 for version, done in before.items()), 60)

    def _first(self):
        while not self.ends.is_set():
            with client(self._stack, self._hosts[0]) as http:
                self._ask("HTTP/1.1", lambda host, http=http: _text(
                    http.get("/nonce", headers={"Host": host})))

    def _second(self):
        while not self.ends.is_set():
            with Http2(self._stack, self._hosts[0]) as http:
                self._ask("HTTP/2", lambda host, http=http: http.get(host, "/nonce"))

    def _ask(self, version, ask):
        for _ in range(REQUESTS):
            if self.ends.wait(0.005):
                return
            for host in self._hosts:
                if (answer := ask(host)) != self._own[host]:
                    self.wrong.append((version, host, answer))
            self.rounds[version] += 1


def _text(answer: httpx.Response):
    return answer.raise_for_status().text
