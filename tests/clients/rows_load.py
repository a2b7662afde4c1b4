"""Load on the app of `tests/browser/keeper_site`, which keeps in a database what it is told."""
import time
from functools import partial

import httpx

from tests.clients.load import Load
from tests.tls.clients import client


class RowsLoad(Load):
    """Writers who tell the app one row after the other, and readers who ask how many it has, each
    over a connection of its own, `pause_s` after the answer before.

    `acknowledged` are the rows that were answered with 200, `others` all other answers, and numbers
    that are lower than what was acknowledged before they were asked for, `times` how long each took
    (s)."""

    def __init__(self, stack, host, rows_before, *, writers, readers=0, pause_s=0.0):
        self._stack, self._host, self._pause_s = stack, host, pause_s
        self._rows_before = rows_before
        self.acknowledged, self.others, self.times = [], [], []
        super().__init__(*(partial(self._ask, self._write, number) for number in range(writers)),
                         *(partial(self._ask, self._read, number) for number in range(readers)))

    def _ask(self, ask, asker):
        number = 0
        with client(self._stack, self._host) as http:
            http.timeout = 120
            while not self.ends.wait(self._pause_s):
                number, began = number + 1, time.monotonic()
                try:
                    ask(http, f"row {asker}-{number}")
                except httpx.HTTPError as error:
                    self.others.append(repr(error))
                self.times.append(time.monotonic() - began)

    def _write(self, http, row):
        answer = http.post("/count", content=row)
        if answer.status_code == 200:
            self.acknowledged.append(row)
        else:
            self.others.append((row, answer.status_code, answer.text[:200]))

    def _read(self, http, _):
        fewest = self._rows_before + len(self.acknowledged)
        answer = http.get("/count")
        if answer.status_code != 200 or answer.json() < fewest:
            self.others.append((fewest, answer.status_code, answer.text[:200]))
