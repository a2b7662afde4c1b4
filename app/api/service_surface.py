"""The routes that only services may call (contract, Deploy surface; User JWT 3): the guard, not yet
the work."""
from typing import NoReturn

from flask import Blueprint

from app.http.answers import answers
from app.http.credentials import SERVICE, accepts
from services.errors import NotBuilt

routes = Blueprint("service_surface", __name__, url_prefix="/v1")


@routes.post("/deploys")
@routes.get("/deploys/<slug>", endpoint="get_deploy")
@routes.delete("/deploys/<slug>", endpoint="delete_deploy")
@accepts(SERVICE)
@answers(501)
def deploy(slug: str = "") -> NoReturn:
    """Publish, look at or remove an app."""
    raise NotBuilt("Deploys are not available in this version.")


@routes.get("/models")
@accepts(SERVICE)
@answers(501)
def models() -> NoReturn:
    """The models that guests may use."""
    raise NotBuilt("Models are not available in this version.")


@routes.post("/messages")
@accepts(SERVICE)
@answers(501)
def messages() -> NoReturn:
    """Ask a model."""
    raise NotBuilt("Messages are not available in this version.")
