"""The routes that only services may call (contract, Deploy surface; User JWT 3): the guard, not yet
the work."""
from typing import NoReturn

from flask import Blueprint

from app.http.credentials import SERVICE
from app.http.route import route
from services.errors import NotBuilt

routes = Blueprint("service_surface", __name__, url_prefix="/v1")


@route(routes, "POST /deploys", accepts=(SERVICE,), status=501)
def deploy() -> NoReturn:
    """Publish an app."""
    raise _no_deploys()


@route(routes, "GET /deploys/<slug>", accepts=(SERVICE,), status=501)
def get_deploy(slug: str) -> NoReturn:
    """Look an app up."""
    raise _no_deploys()


@route(routes, "DELETE /deploys/<slug>", accepts=(SERVICE,), status=501)
def delete_deploy(slug: str) -> NoReturn:
    """Remove an app."""
    raise _no_deploys()


@route(routes, "GET /models", accepts=(SERVICE,), status=501)
def models() -> NoReturn:
    """The models that guests may use."""
    raise NotBuilt("Models are not available in this version.")


@route(routes, "POST /messages", accepts=(SERVICE,), status=501)
def messages() -> NoReturn:
    """Ask a model."""
    raise NotBuilt("Messages are not available in this version.")


def _no_deploys() -> NotBuilt:
    return NotBuilt("Deploys are not available in this version.")
