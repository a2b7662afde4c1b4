"""Who is asking: a guest by its slot's address and its secret, or a service on the API's host by
its token."""
import re
from dataclasses import dataclass

from aiohttp import web

from app.guest_gateway.rows import Rows
from config.settings import Settings
from services.accounts import principals
from services.accounts.principals import Credential
from services.accounts.tokens import Authority
from services.errors import NotFound, Unauthenticated
from services.llm.callers import LlmCaller, caller_of_service, find_caller

_SECRET_PATH = re.compile(r"/s/([^/]{1,200})(/.*)")
_SECRET = re.compile(r"[\w.-]{1,200}", re.ASCII)


@dataclass(frozen=True)
class Asking:
    """A caller, and the path that it asks for, without its secret."""

    caller: LlmCaller
    path: str


class Callers:
    """Finds callers; asks the database off the event loop."""

    def __init__(self, settings: Settings, authority: Authority, rows: Rows) -> None:
        self._settings, self._authority, self._rows = settings, authority, rows
        # Apart, so that strangers whose tokens wait for an identity host that hangs keep no guest
        # waiting.
        self._service_rows = Rows()

    async def of_guest(self, request: web.BaseRequest, source: str) -> Asking:
        """The sandbox at a source address; raises Unauthenticated without a secret, Forbidden with
        a wrong one, Unavailable."""
        match = _SECRET_PATH.fullmatch(request.rel_url.raw_path)
        secret, path = match.groups() if match else (_key(request), request.rel_url.raw_path)
        if not _SECRET.fullmatch(secret):
            raise Unauthenticated("The LLM proxy needs a sandbox's own address, SVC_AI_URL.")
        caller = await self._rows.ask(find_caller, self._settings, source, secret)
        return Asking(caller, path)

    async def of_service(self, request: web.BaseRequest) -> Asking:
        """The service whose token the request has, or whom it acts for; raises as
        `principals.identify`."""
        path = request.rel_url.raw_path
        if path not in ("/v1/models", "/v1/messages"):
            raise NotFound("There is no such route.")
        # None where there is none: an empty one is as wrong as another that names no account.
        named = request.headers.getall("X-On-Behalf-Of", None)
        caller = await self._service_rows.ask(
            self._identify, request.headers.get("Authorization", ""),
            None if named is None else ",".join(named))
        return Asking(caller, path)

    def _identify(self, authorization: str, on_behalf_of: str | None) -> LlmCaller:
        secret = principals.secret_of(authorization)
        principal = principals.identify(self._settings, self._authority, secret, on_behalf_of)
        principals.require(principal, (Credential.SERVICE,))
        return caller_of_service(principal.subject, principal.owner)


def _key(request: web.BaseRequest) -> str:
    """The secret where clients put a provider's key."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else request.headers.get("X-Api-Key", "")
