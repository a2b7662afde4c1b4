"""Passes requests for served apps on that the edge could not: the sandbox sleeps, refuses, or
nobody at the edge knows where it is.

1. While a fence is up the request is held. 2. The sandbox is reached as that of a preview is, and
its app given a moment to listen: it may have just been booted. 3. In the step in which the request
is sent it is looked at once more where the app is, and the request counts as in flight from then
on. So nothing is sent to a sandbox of which was said that nothing would be.
"""
import asyncio
from collections.abc import Awaitable, Callable

from app.gateway import pages
from app.gateway.apps.in_flight import InFlight
from app.gateway.apps.known import Known
from app.gateway.apps.workers import target_of
from app.gateway.edge_requests import Head
from app.gateway.pages import Page
from app.gateway.reach_port import Link, Reacher, Refused
from app.gateway.splice import splice
from services.deploys.edges.routes import Kind, Route
from services.previews.lookup import Target

# A fence is shorter.
_HELD_S = 60.0
_LISTENS_S, _LOOK_S = 10.0, 0.25
UNKNOWN = Page(404, "Nothing here", "There is no app at this address.")
COMING = Page(503, "The app is about to change", "This page loads again by itself.", retry_s=2)
STARTING = Page(503, "The app is starting",
                "It takes longer than usual. This page loads again by itself.", retry_s=3)
SILENT = Page(502, "The app does not answer", "Its server does not listen on port 3000.")
LOST = Page(503, "The app is not available",
            "Its machine is gone. It is back with the next deploy.", retry_s=60)
_OF_APPS = {id(pages.NOT_READY): STARTING, id(pages.STOPPED): LOST, id(pages.CLOSED): SILENT}


class _Moved(Exception):
    """The app is elsewhere by now, or held."""


class Requests:
    """Serves requests for apps; `in_flight` are those that were sent."""

    def __init__(self, known: Known, reacher: Reacher, in_flight: InFlight) -> None:
        self._known = known
        self._reacher = reacher
        self._in_flight = in_flight

    async def find_owner(self, name: str) -> str:
        """Whose app it is; raises Refused for one that is not there or not served, and
        DatabaseFailed."""
        while (route := self._known.find(name)) is None:
            kind = await self._known.find_kind(name)
            if kind is not Kind.SERVED:
                raise Refused(UNKNOWN if kind is None else COMING)
            await self._known.refresh()
        return route.owner_id

    async def serve(self, edge: Link, head: Head) -> None:
        """Have the app answer; raises Refused, DatabaseFailed."""
        present = asyncio.get_running_loop().time
        end, listens_by = present() + _HELD_S, present() + _LISTENS_S
        while True:
            route = await self._open_route(head.app, end)
            try:
                guest = await self._reacher.connect(target_of(route), self._same(head.app, route))
            except _Moved:
                continue
            except Refused as refused:
                if refused.page is pages.CLOSED and present() < listens_by:
                    await asyncio.sleep(_LOOK_S)
                    continue
                raise Refused(_OF_APPS.get(id(refused.page), refused.page)) from None
            if self._leads_to(head.app, route.sandbox_id):
                break
            guest.writer.close()
        with self._in_flight.one(route.sandbox_id) as request:
            await splice(head.text, edge, guest, request.end)

    async def _open_route(self, name: str, end: float) -> Route:
        """Where the app is, once requests for it are not held."""
        while True:
            await self.find_owner(name)
            route = self._known.find(name)
            if route is not None and not route.is_held and self._known.is_valid:
                return route
            left_s = end - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise Refused(STARTING)
            if not self._known.is_valid:
                await self._known.refresh()
            await self._known.change(left_s)

    def _same(self, name: str, before: Route) -> Callable[[], Awaitable[Target]]:
        async def look_again() -> Target:
            await self._known.refresh()
            route = self._known.find(name)
            if route is None or route.is_held or route.sandbox_id != before.sandbox_id:
                raise _Moved
            return target_of(route)
        return look_again

    def _leads_to(self, name: str, sandbox_id: str) -> bool:
        route = self._known.find(name)
        return (route is not None and not route.is_held and route.sandbox_id == sandbox_id
                and self._known.is_valid)
