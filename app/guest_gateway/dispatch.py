"""Who is asking, this host or a guest, and what for; and what is said when it goes wrong."""
import logging

from aiohttp import web

from app.guest_gateway.answers import refusal
from app.guest_gateway.callers import Callers
from app.guest_gateway.connections import is_of_host, is_one_request, source_of
from app.guest_gateway.llm.proxy import LlmProxy
from app.guest_gateway.npm.cache import PREFIX as NPM
from app.guest_gateway.npm.cache import RegistryCache
from app.guest_gateway.replica_store.request import ROOM, ReplicaStore
from app.guest_gateway.rows import Rows
from models.database import DatabaseUnavailable
from services.errors import NotFound, ServiceError
from services.hosts import metrics as host_metrics
from services.llm import metrics as llm_metrics
from services.llm.configured.live_config import LiveConfig
from services.prometheus import text_of

log = logging.getLogger(__name__)
_NO_PROXY = "This installation has no LLM proxy."
_NO_REGISTRY = "This installation has no registry cache."


class Dispatch:
    """Answers every request of the process."""

    def __init__(self, callers: Callers, config: LiveConfig | None, proxy: LlmProxy,
                 rows: Rows, registry: RegistryCache | None, replicas: ReplicaStore) -> None:
        self._callers, self._config, self._proxy, self._rows = callers, config, proxy, rows
        self._registry, self._replicas = registry, replicas

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to one request."""
        of_host = is_of_host(request.protocol)
        if of_host and request.path == "/health":
            return web.json_response({"status": "ok"})
        try:
            answer = await self._answer(request, of_host=of_host)
        except ServiceError as error:
            answer = refusal(error.status, error.text, retry_after_s=error.retry_after_s,
                             plain=of_host)
        except DatabaseUnavailable as error:
            log.warning("a request was refused: %s", type(error).__name__)
            answer = refusal(503, "The service's database is unavailable right now; try again.",
                             retry_after_s=2, plain=of_host)
        if is_one_request(request):
            answer.force_close()
        return answer

    async def _answer(self, request: web.BaseRequest, *, of_host: bool) -> web.StreamResponse:
        if of_host and request.path == "/metrics" and not is_one_request(request):
            return web.Response(text=await self._rows.ask(_figures))
        if not of_host and request.rel_url.raw_path.startswith(f"{NPM}/"):
            if self._registry is None:
                raise NotFound(_NO_REGISTRY)
            return await self._registry.serve(request, source_of(request.transport))
        if not of_host and f"{request.path}/".startswith(f"{ROOM}/"):
            return await self._replicas.serve(request, source_of(request.transport))
        if of_host:
            asking = await self._callers.of_service(request)
        else:
            asking = await self._callers.of_guest(request, source_of(request.transport))
        if self._config is None:
            raise NotFound(_NO_PROXY)
        return await self._proxy.serve(request, asking.path, self._config.current, asking.caller,
                                       plain=of_host)


def _figures() -> str:
    return text_of([*llm_metrics.families(), *host_metrics.families()])
