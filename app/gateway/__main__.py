"""The gateway process: `python -m app.gateway`."""
import asyncio
import logging
import signal
import socket
import sys

from app.gateway.apps.in_flight import InFlight, keep_telling
from app.gateway.apps.known import Known
from app.gateway.apps.requests import Requests
from app.gateway.apps.workers import Workers
from app.gateway.open_connections import keep_connected_awake
from app.gateway.reach_port import Reacher
from app.gateway.rows import Rows
from app.gateway.server import Server
from app.gateway.wiring import build
from config.logging import configure
from config.settings import Settings, get_settings
from services.deploys.edges.listener import Listener
from services.protocols import Deps

log = logging.getLogger(__name__)
# A line of a head, of which the edge takes 32 KiB.
_LINE_BYTES = 64 * 1024
_BACKLOG = 2048


async def serve(settings: Settings, deps: Deps) -> None:
    """Serve the edge on SVC_GATEWAY_PORT until SIGTERM or SIGINT. Requests under way end with us;
    the edge asks again for those that may be sent twice."""
    rows, known, in_flight = Rows(deps), Known(socket.gethostname()), InFlight()
    reacher, workers = Reacher(rows, settings.readiness_wait_s), Workers(known, rows.note_used)
    server = Server(rows, reacher, Requests(known, reacher, in_flight), workers)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    Listener(lambda: loop.call_soon_threadsafe(known.ring)).start()
    listener = await asyncio.start_server(server.handle, "127.0.0.1", settings.gateway_port,
                                          limit=_LINE_BYTES, backlog=_BACKLOG)
    chores = [asyncio.create_task(chore) for chore in (
        rows.keep_noting(), keep_connected_awake(rows), known.keep_reading(),
        keep_telling(known, workers, in_flight))]
    log.info("gateway is up")
    ended = asyncio.create_task(stop.wait())
    await asyncio.wait([ended, *chores], return_when=asyncio.FIRST_COMPLETED)
    listener.close()
    for chore in chores:
        if chore.done():
            chore.result()  # without it our answers would be of the past: we are started again
        chore.cancel()


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    settings = get_settings()
    configure(settings.log_level)
    asyncio.run(serve(settings, build(settings)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
