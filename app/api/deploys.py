"""Deploys: published, looked up, read along, rolled back, removed, with variables of their apps;
for services only (contract, Deploy surface)."""
from typing import Any

from flask import Blueprint, Response

from app.http.admission import DATA, LIFECYCLE
from app.http.credentials import SERVICE
from app.http.route import route
from app.schemas.deploys import (
    DeployAnswer,
    DeployBody,
    DeployListAnswer,
    OutputQuery,
    RollbackBody,
    VariableAnswer,
    VariableBody,
    VariableListAnswer,
)
from app.schemas.paging import PageQuery
from app.wiring import get_deps
from models.users import User
from services.deploys import app_removal, logs, rollback, variables
from services.deploys.apps import find, listing, output
from services.deploys.apps.listing import DeployPage
from services.deploys.apps.views import DeployView
from services.deploys.begin_run import RollbackRequest, reserve
from services.deploys.edges import staging
from services.deploys.variables import Variable

routes = Blueprint("deploys", __name__, url_prefix="/v1/deploys")
_TEXT = "text/plain"
# As long may an edge that is slow, or has just died, hold up who has deployed something.
_EDGES_S = 2.0


@route(routes, "POST", accepts=(SERVICE,), answers=DeployAnswer, also={202: DeployAnswer},
       body=DeployBody, errors=(404, 409), admission=LIFECYCLE,
       example={"snapshotId": "snap_...", "slug": "hello", "runId": "run-1", "async": True})
def publish(owner: User, body: dict[str, Any], response: Response) -> DeployView:
    """Build a snapshot and publish it as an app of the account that the service acts for. 202: it
    was taken on and goes on; 200: it has ended, and `error` says whether it failed."""
    return _followed(reserve(get_deps(), owner, body["request"]), response,
                     at_once=body["at_once"])


def _followed(begun: DeployView, response: Response, *, at_once: bool) -> DeployView:
    """The app at the end of the deploy, served by then; as it is if that is not to be waited for,
    or too long."""
    deps = get_deps()
    ended = find.wait_for(deps, begun, 0 if at_once else deps.settings.deploy_wait_s)
    if ended is None:
        response.status_code = 202
        return begun
    staging.wait_until_caught_up(_EDGES_S)
    return ended


@route(routes, "GET", accepts=(SERVICE,), answers=DeployListAnswer, query=PageQuery)
def list_page(owner: User, query: dict[str, Any]) -> DeployPage:
    """The apps of the account that the service acts for, newest first."""
    return listing.list_page(get_deps(), owner, **query)


@route(routes, "GET /<slug>", accepts=(SERVICE,), answers=DeployAnswer)
def get(namespace: User | None, slug: str) -> DeployView:
    """An app, and the deploy that was begun last; any account's for a service that acts for
    nobody."""
    return find.get_view(get_deps(), namespace, slug)


@route(routes, "GET /<slug>/log", accepts=(SERVICE,), answers=_TEXT)
def log(namespace: User | None, slug: str) -> Response:
    """What the last deploy of an app has said so far."""
    said = logs.read(find.get_log(namespace, slug))
    return Response(said, content_type=f"{_TEXT}; charset=utf-8")


@route(routes, "GET /<slug>/logs", accepts=(SERVICE,), answers=_TEXT, query=OutputQuery,
       errors=(409,), admission=DATA)
def read_output(namespace: User | None, slug: str, query: dict[str, Any]) -> Response:
    """The last lines that an app's own process has written, while it runs; one that sleeps is not
    woken."""
    said = output.read(get_deps(), namespace, slug, query["lines"])
    return Response(said, content_type=f"{_TEXT}; charset=utf-8")


@route(routes, "POST /<slug>/rollback", accepts=(SERVICE,), answers=DeployAnswer,
       also={202: DeployAnswer}, body=RollbackBody, errors=(409,), admission=LIFECYCLE,
       example={"runId": "run-2"})
def roll_back(owner: User, slug: str, body: dict[str, Any], response: Response) -> DeployView:
    """Bring an earlier version of an app back, by a deploy that builds it again unless its files
    are still served; data stays as it is."""
    request = RollbackRequest(slug, **body["rollback"])
    return _followed(rollback.roll_back(get_deps(), owner, request), response,
                     at_once=body["at_once"])


@route(routes, "DELETE /<slug>", accepts=(SERVICE,), answers=DeployAnswer)
def remove(owner: User, slug: str) -> DeployView:
    """Remove an app of the account that the service acts for; its address answers 404 at once."""
    removed = app_removal.remove(get_deps(), owner, slug)
    staging.wait_until_caught_up(_EDGES_S)
    return removed


@route(routes, "GET /<slug>/variables", accepts=(SERVICE,), answers=VariableListAnswer)
def list_variables(owner: User, slug: str) -> list[Variable]:
    """The variables of an app of the account that the service acts for."""
    return variables.list_all(get_deps(), owner, slug)


@route(routes, "PUT /<slug>/variables/<variable>", accepts=(SERVICE,), answers=VariableAnswer,
       body=VariableBody, errors=(409,), example={"value": "postgres://...", "secret": True})
def put_variable(owner: User, slug: str, variable: str, body: dict[str, Any]) -> Variable:
    """Set a variable; what is deployed from now on finds it in its environment."""
    return variables.put(get_deps(), owner, slug, variable, **body)


@route(routes, "DELETE /<slug>/variables/<variable>", accepts=(SERVICE,), answers=VariableAnswer)
def remove_variable(owner: User, slug: str, variable: str) -> Variable:
    """Remove a variable; what is deployed from now on does not find it any more."""
    return variables.remove(owner, slug, variable)
