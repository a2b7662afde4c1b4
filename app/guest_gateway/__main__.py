"""The guest gateway: `python -m app.guest_gateway`."""
import asyncio
import contextlib
import logging
import resource
import signal
import socket
import sys

from app.guest_gateway.callers import Callers
from app.guest_gateway.connections import LOOPBACK, Connections
from app.guest_gateway.dispatch import Dispatch
from app.guest_gateway.handed_over import take_connections
from app.guest_gateway.llm.calls import Calls
from app.guest_gateway.llm.proxy import LlmProxy
from app.guest_gateway.npm.cache import RegistryCache
from app.guest_gateway.npm.kept_files import KeptFiles
from app.guest_gateway.npm.owners import Owners
from app.guest_gateway.replica_store.request import ReplicaStore
from app.guest_gateway.rows import Rows
from app.http.identity_mirror import IdentityMirror
from config.logging import configure
from config.settings import Settings, SettingsError, get_settings
from models.database import connect
from services.llm.configured.live_config import LiveConfig

log = logging.getLogger(__name__)
_BACKLOG, _ENDING_S, _LOOK_S = 1024, 2.0, 1.0
# aiohttp takes 0 for no limit.
_BROKEN_OFF_S = 0.1
# Two for each request, and some.
_OPEN_FILES = 16384


async def serve(settings: Settings, config: LiveConfig | None) -> None:
    """Serve guests, and this host, on SVC_GUEST_GATEWAY_PORT until SIGTERM or SIGINT. What is under
    way then is broken off, and written down as such."""
    loop, rows = asyncio.get_running_loop(), Rows()
    stop, told = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if config is not None:
        loop.add_signal_handler(signal.SIGHUP, told.set)
    mirror = IdentityMirror(settings)
    mirror.start()
    calls = Calls(f"{socket.gethostname()}:{settings.guest_gateway_port}", rows)
    proxy = LlmProxy(calls)
    registry = _registry(settings, rows)
    replicas = ReplicaStore(settings, rows)
    dispatch = Dispatch(Callers(settings, mirror, rows), config, proxy, rows, registry, replicas)
    connections = Connections(dispatch.handle)
    listener = await loop.create_server(connections, LOOPBACK, settings.guest_gateway_port,
                                        backlog=_BACKLOG)
    chores = [take_connections(settings.guest_gateway_port, connections), calls.keep_reporting()]
    if config is not None:
        chores.append(_keep_looking(config, rows, told))
    tasks = [asyncio.create_task(chore) for chore in chores]
    log.info("guest gateway is up")
    ended = asyncio.create_task(stop.wait())
    await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
    listener.close()
    await connections.shutdown(_BROKEN_OFF_S)
    await calls.close(_ENDING_S)
    await proxy.upstreams.close()
    await replicas.store.close()
    if registry is not None:
        await registry.close()
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()


def _registry(settings: Settings, rows: Rows) -> RegistryCache | None:
    if not settings.npm_registry:
        return None
    kept_files = KeptFiles(settings.data_dir / "npm", settings.npm_cache_mb << 20)
    return RegistryCache(settings.npm_registry, kept_files, Owners(settings, rows))


async def _keep_looking(config: LiveConfig, rows: Rows, told: asyncio.Event) -> None:
    """Read the configuration again when one of its files has changed, or as soon as `told` is set,
    until cancelled."""
    while True:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(told.wait(), _LOOK_S)
        read = config.reload if told.is_set() else config.look
        told.clear()
        await rows.ask(read)


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    settings = get_settings()
    configure(settings.log_level)
    connect(settings.database_url, pool_size=settings.db_pool_size,
            application="svc-guest-gateway")
    try:
        config = LiveConfig(settings.llm_config) if settings.llm_config else None
    except SettingsError as error:
        log.error("%s", error)
        return 1
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _OPEN_FILES), hard))
    asyncio.run(serve(settings, config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
