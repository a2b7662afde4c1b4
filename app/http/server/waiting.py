"""The connections whose next request is still arriving, and which of them is given up next."""
import itertools
import time
from collections.abc import Iterator, Mapping

from app.http.server.arriving import Stage
from app.http.server.connection import Connection


class Waiting:
    """A line for each stage that a request may wait in, which may last `limits_s` seconds. As all
    of a stage have the same time, the first of its line is always the next to be given up."""

    def __init__(self, limits_s: Mapping[Stage, float]) -> None:
        self._limits_s = limits_s
        # With the time by which the stage must have ended.
        self._lines: dict[Stage, dict[Connection, float]] = {stage: {} for stage in limits_s}

    def add(self, conn: Connection) -> None:
        """Let it have the time of the stage that its request is at."""
        stage = conn.arriving.stage
        self._lines[stage][conn] = time.monotonic() + self._limits_s[stage]

    def remove(self, conn: Connection) -> None:
        """It waits no longer; nor need it have."""
        for line in self._lines.values():
            line.pop(conn, None)

    def oldest(self) -> Connection | None:
        """The one that has been at its stage for longest; None if there is none."""
        firsts = [(until - self._limits_s[stage], conn) for stage, line in self._lines.items()
                  for conn, until in itertools.islice(line.items(), 1)]
        return min(firsts, key=lambda first: first[0])[1] if firsts else None

    def all(self) -> list[tuple[Connection, float]]:
        """All, with the times by which their stages must have ended."""
        return [each for line in self._lines.values() for each in line.items()]

    def first_ones(self) -> Iterator[tuple[Connection, float]]:
        """The first of each line, and the next whenever the caller has removed that one."""
        for line in self._lines.values():
            last = None
            while line and (first := next(iter(line.items()))) != last:
                yield first
                last = first
