"""Serves the edge: look-ups on connections that it keeps, workers that are told where apps are, and
requests, one for each connection.

The edge collects heads before it passes a request on. What a request holds here is bounded: its
head and four small buffers. So are the requests (`visitor_limits.py`).
"""
import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.gateway.apps.requests import Requests
from app.gateway.apps.workers import Workers
from app.gateway.edge_requests import EdgeWorker, Head, Lookup, TooLong, read_first
from app.gateway.pages import AWAY, TOO_LARGE, Page
from app.gateway.reach_port import BUFFER_BYTES, Link, Reacher, Refused
from app.gateway.rows import Rows
from app.gateway.splice import end, splice
from app.gateway.visitor_limits import Admission
from models.database import DatabaseFailed

log = logging.getLogger(__name__)
_HEAD_S = 10.0
NOWHERE, UNKNOWN_HOST = b"-\r\n", b"?\r\n"


class Server:
    """Handles the connections of one listening socket."""

    def __init__(self, rows: Rows, reacher: Reacher, apps: Requests, workers: Workers) -> None:
        self._rows = rows
        self._reacher = reacher
        self._apps = apps
        self._workers = workers
        self._admission = Admission()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        edge = Link(reader, writer)
        try:
            await self._serve(edge)
        except (OSError, asyncio.TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # the process ends; before Python 3.12 asyncio would log it as an error
        finally:
            writer.close()

    async def _serve(self, edge: Link) -> None:
        try:
            first = await asyncio.wait_for(read_first(edge.reader), _HEAD_S)
            while isinstance(first, Lookup):
                edge.writer.write(await self._look_up(first.label))
                await edge.writer.drain()
                first = await read_first(edge.reader)
        except TooLong:
            await _refuse(edge, TOO_LARGE, None)
            return
        if isinstance(first, EdgeWorker):
            await self._workers.serve(edge, first.pid)
        elif first is not None:
            await self._request(edge, first)

    async def _look_up(self, label: str) -> bytes:
        """The address of a guest that runs, or that there is no such host. Everything else is to be
        passed on to us."""
        try:
            target = await self._rows.find(label)
        except DatabaseFailed:
            return NOWHERE
        if target is None:
            return UNKNOWN_HOST
        if not target.is_up:
            return NOWHERE
        self._rows.note_use(target)
        return f"{target.address} {target.host_port}\r\n".encode()

    async def _request(self, edge: Link, head: Head) -> None:
        try:
            if head.app:
                owner = await self._apps.find_owner(head.app)
                with self._admission.admitted(owner), _told(app=head.app):
                    await self._apps.serve(edge, head)
            else:
                await self._preview(edge, head)
            await end(edge)
        except Refused as refused:
            await _refuse(edge, refused.page, head)
        except DatabaseFailed as error:
            log.warning("a request was refused: %s", type(error).__name__)
            await _refuse(edge, AWAY, head)

    async def _preview(self, edge: Link, head: Head) -> None:
        target = await self._reacher.get_target(head.label)
        with self._admission.admitted(target.owner_id), _told(sandbox=target.sandbox_id):
            guest = await self._reacher.connect(
                target, lambda: self._reacher.get_target(head.label))
            await splice(head.text, edge, guest)


@contextmanager
def _told(**what: str) -> Iterator[None]:
    """Log what could not be reached although it should."""
    try:
        yield
    except Refused as refused:
        if refused.page.retry_s is not None:
            log.warning("a request was refused: %s", refused.page.title, extra=what)
        raise


async def _refuse(edge: Link, page: Page, head: Head | None) -> None:
    edge.writer.write(page.answer(is_head=head is not None and head.is_head,
                                  wants_json=head is not None and head.wants_json))
    await edge.writer.drain()
    await end(edge)
