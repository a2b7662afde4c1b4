"""Create, list, get and delete."""
from typing import Any

from flask import Blueprint

from app.http.admission import LIFECYCLE, PRESET, PROMPT, enter
from app.http.credentials import ACCOUNTS
from app.http.route import route
from app.schemas.sandboxes import (
    CreateBody,
    ListQuery,
    SandboxAnswer,
    SandboxListAnswer,
    UsageAnswer,
)
from app.wiring import get_deps
from models.users import User
from services.sandboxes import create as sandboxes
from services.sandboxes import find, lifecycle, listing, usage
from services.sandboxes.caller import Caller
from services.sandboxes.listing import Page
from services.sandboxes.requests import CreateRequest
from services.sandboxes.usage import UsageView
from services.sandboxes.views import SandboxView

routes = Blueprint("sandboxes", __name__, url_prefix="/v1/sandboxes")


@route(routes, "POST", accepts=ACCOUNTS, status=201, answers=SandboxAnswer, body=CreateBody,
       errors=(402, 404, 409), example={"ports": [3000]})
def create(caller: Caller, body: CreateRequest) -> SandboxView:
    """Start a sandbox; answers before it has booted, with a `template` once that is ready or has
    failed."""
    if body.template is not None:
        enter(PRESET)
    return sandboxes.create(get_deps(), caller, body)


@route(routes, "GET", accepts=ACCOUNTS, answers=SandboxListAnswer, query=ListQuery)
def list_page(owner: User, query: dict[str, Any]) -> Page:
    """The owner's sandboxes, newest first."""
    return listing.list_page(owner, **query)


@route(routes, "GET /<sandbox_id>", accepts=ACCOUNTS, answers=SandboxAnswer, admission=PROMPT)
def get(caller: Caller, sandbox_id: str) -> SandboxView:
    """One sandbox, a stopped one too, so that whoever polls sees how its boot ended."""
    return find.get_view(caller, sandbox_id)


@route(routes, "GET /<sandbox_id>/usage", accepts=ACCOUNTS, answers=UsageAnswer, admission=PROMPT)
def get_usage(caller: Caller, sandbox_id: str) -> UsageView:
    """What a sandbox has used, in whatever state it is."""
    return usage.get_view(caller, sandbox_id)


@route(routes, "DELETE /<sandbox_id>", accepts=ACCOUNTS, answers=SandboxAnswer, errors=(409,),
       admission=LIFECYCLE)
def delete(caller: Caller, sandbox_id: str) -> SandboxView:
    """Tear a sandbox down; returns once it is stopped."""
    return lifecycle.delete(get_deps(), caller, sandbox_id)
