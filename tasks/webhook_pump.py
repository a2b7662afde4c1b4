"""Sends what is due to one receiver, many at once, until nothing is due any more.

1. Claim what is due, as much as there are free slots. 2. Post all of it at the same time, each
   under its own time-out.
3. Write down the results as they come, in batches; until they are written they are kept, across a
   restart of the database.
4. Go on while anything is due or under way. Beat's ticks start the pump again when there is more.
   Database calls run in a thread of their own, so that a slow one neither delays answers nor makes
   them look late.
"""
import asyncio
import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import peewee

from models.database import connection
from services.events import deliveries
from services.events.deliveries import Claimed, Result
from services.events.receivers import Receiver, WebhookOptions
from services.events.signature import signed_headers
from tasks.webhook_post import Answer, post

log = logging.getLogger(__name__)
T = TypeVar("T")

_AGENT = "svc-webhooks/1"
# A lease outlives the time-out of its attempt by this (s): time to write the result, a short
# absence of Postgres included.
_LEASE_MARGIN_S = 15.0
_POLL_S = 0.1
_CLAIM_BATCH = 100
_RECORD_RETRY_S = 0.5


class Pump:
    """The one that sends to `receiver` in this process."""

    def __init__(self, receiver: Receiver, options: WebhookOptions, stop: threading.Event) -> None:
        self._receiver, self._options, self._stop = receiver, options, stop
        self._busy = threading.Lock()
        self._tls = ssl.create_default_context()

    def run(self, sender: str) -> int:
        """Send until nothing is due, or `stop` is set and what is under way has ended; returns how
        many attempts were made. Does nothing if another thread is at it already."""
        if not self._busy.acquire(blocking=False):
            return 0
        try:
            with ThreadPoolExecutor(1, "webhook-rows") as rows:
                return asyncio.run(self._run(sender, rows))
        finally:
            self._busy.release()

    async def _run(self, sender: str, rows: ThreadPoolExecutor) -> int:
        under_way: set[asyncio.Task[None]] = set()
        results: list[Result] = []
        news = asyncio.Event()

        async def attempt(claimed: Claimed) -> None:
            results.append(await self._attempt(claimed))
            news.set()

        made, look_at = 0, 0.0
        while True:
            limit = min(self._options.slots - len(under_way), _CLAIM_BATCH)
            more = False
            if limit > 0 and time.monotonic() >= look_at and not self._stop.is_set():
                claimed = await self._claim(sender, limit, rows)
                made += len(claimed)
                for one in claimed:
                    task = asyncio.create_task(attempt(one))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                more = len(claimed) == limit
                look_at = 0.0 if more else time.monotonic() + _POLL_S
            if results:
                batch, results[:] = list(results), []
                await self._record(batch, rows)
            elif not under_way:
                return made
            elif not more:
                news.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(news.wait(), _POLL_S)

    async def _attempt(self, claimed: Claimed) -> Result:
        timestamp = int(time.time())
        headers = {"Content-Type": "application/json", "User-Agent": _AGENT} | signed_headers(
            self._options.secrets, claimed.event_id, claimed.event_type, timestamp, claimed.body
        )
        try:
            answer = await post(
                self._receiver, headers, claimed.body, timeout_s=self._options.timeout_s,
                tls=self._tls,
            )
        except Exception as error:  # one delivery that we cannot make must not keep the others
            log.exception("posting %s to %s", claimed.event_id, self._receiver.name)
            answer = Answer(False, 0.0, reason=f"our own mistake: {type(error).__name__}")
        return Result(claimed, answer.delivered, answer.duration_ms, answer.http_status,
                      answer.reason)

    async def _claim(self, sender: str, limit: int, rows: ThreadPoolExecutor) -> list[Claimed]:
        lease_s = self._options.timeout_s + _LEASE_MARGIN_S

        def claim() -> list[Claimed]:
            return deliveries.claim_due(self._receiver.name, sender, limit=limit, lease_s=lease_s)

        try:
            return await self._in_thread(claim, rows)
        except peewee.PeeweeException as error:
            log.warning("cannot claim deliveries (%s); the next tick tries again",
                        type(error).__name__)
            return []

    async def _record(self, results: list[Result], rows: ThreadPoolExecutor) -> None:
        """Write results, also across a restart of the database. After the leases are over they are
        given up: another sender goes on with the schedule then."""
        lost = [
            one for one in results
            if not one.delivered and one.claimed.number >= len(self._options.waits_s)
        ]
        if lost:
            log.warning("dropped %d events for %s; %s: %s", len(lost), self._receiver.name,
                        lost[0].claimed.event_id, lost[0].reason)
        deadline = time.monotonic() + _LEASE_MARGIN_S
        while True:
            try:
                return await self._in_thread(
                    lambda: deliveries.record_results(results, self._options.waits_s), rows
                )
            except peewee.PeeweeException as error:
                log.warning("cannot record %d results (%s)", len(results), type(error).__name__)
                if time.monotonic() > deadline:
                    return
                await asyncio.sleep(_RECORD_RETRY_S)

    @staticmethod
    async def _in_thread(call: Callable[[], T], rows: ThreadPoolExecutor) -> T:
        def connected() -> T:
            with connection():
                return call()

        return await asyncio.get_running_loop().run_in_executor(rows, connected)
