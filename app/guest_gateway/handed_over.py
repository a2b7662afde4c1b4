"""Takes the connections that the API process gives away: requests for models on its own port.

Each is served once and closed, since what its client asks next may be for the API.
"""
import asyncio
import contextlib
import logging
import socket

from app.guest_gateway.connections import Connections
from app.http.server.handing_over import GUEST_GATEWAY, listen, take_over

log = logging.getLogger(__name__)
# The process before this one may still be letting go of the name.
_TRIES, _PAUSE_S = 50, 0.1
_ROADS_MOST, _ROAD_S = 200, 5.0


async def take_connections(port: int, connections: Connections) -> None:
    """Serve what is handed over for `port`, until cancelled."""
    loop = asyncio.get_running_loop()
    roads: set[asyncio.Task[None]] = set()
    with await _listen(port) as listener:
        while True:
            try:
                road, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.error("a connection could not be taken over (%s)", type(error).__name__)
                await asyncio.sleep(_PAUSE_S)
                continue
            if len(roads) >= _ROADS_MOST:
                road.close()
                continue
            task = loop.create_task(_take(road, connections))
            roads.add(task)
            task.add_done_callback(roads.discard)


async def _listen(port: int) -> socket.socket:
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            return listen(GUEST_GATEWAY, port)
        await asyncio.sleep(_PAUSE_S)
    return listen(GUEST_GATEWAY, port)


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


async def _take(road: socket.socket, connections: Connections) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    with road:
        road.setblocking(False)
        loop.add_reader(road, _set, ready)
        try:
            await asyncio.wait_for(ready, _ROAD_S)
            found = take_over(road)
        except (asyncio.TimeoutError, OSError):
            return
        finally:
            loop.remove_reader(road)
    if found is None:
        return
    link, received = found
    link.setblocking(False)
    try:
        _, protocol = await loop.connect_accepted_socket(connections.for_one_request, link)
    except OSError:
        link.close()
        return
    protocol.data_received(received)
