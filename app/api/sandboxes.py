"""Create, list, get and delete."""
from typing import Any

from flask import Blueprint, Response

from app.http.admission import LIFECYCLE, PRESET, PROMPT, STATUS, enter, try_enter
from app.http.credentials import ACCOUNTS
from app.http.preferences import APPLIED
from app.http.route import route
from app.schemas.sandboxes import (
    CreateBody,
    GetQuery,
    ListQuery,
    SandboxAnswer,
    SandboxListAnswer,
    UsageAnswer,
)
from app.wiring import get_deps
from models.database import DatabaseUnavailable
from models.users import User
from services.sandboxes import create as sandboxes
from services.sandboxes import find, lifecycle, listing, usage, waiting
from services.sandboxes.caller import Caller
from services.sandboxes.listing import Page
from services.sandboxes.requests import CreateRequest
from services.sandboxes.usage import UsageView
from services.sandboxes.views import SandboxView

routes = Blueprint("sandboxes", __name__, url_prefix="/v1/sandboxes")


@route(routes, "POST", accepts=ACCOUNTS, status=201, answers=SandboxAnswer, body=CreateBody,
       errors=(402, 404, 409), example={"ports": [3000]})
def create(caller: Caller, body: CreateRequest, wait_s: int | None,
           response: Response) -> SandboxView:
    """Start a sandbox; answers before it has booted, unless it is preferred to wait, with a
    `template` once that is ready or has failed."""
    if body.template is not None:
        enter(PRESET)
        return sandboxes.create(get_deps(), caller, body)
    return await_boot(sandboxes.create(get_deps(), caller, body), wait_s, response)


def await_boot(made: SandboxView, wait_s: int | None, response: Response) -> SandboxView:
    """`made` once its boot has ended, if the client waits for that (`wait_s`) and a thread may;
    `response` says whether."""
    if wait_s is None or not try_enter(STATUS):
        return made
    try:
        booted = waiting.wait_for_boot(made.id, wait_s)
    except DatabaseUnavailable:
        return made  # an error would say that nothing was made
    response.headers[APPLIED] = f"wait={wait_s}"
    return booted


@route(routes, "GET", accepts=ACCOUNTS, answers=SandboxListAnswer, query=ListQuery)
def list_page(owner: User, query: dict[str, Any]) -> Page:
    """The owner's sandboxes, newest first."""
    return listing.list_page(owner, **query)


@route(routes, "GET /<sandbox_id>", accepts=ACCOUNTS, about=find.VIEW, answers=SandboxAnswer,
       query=GetQuery, admission=PROMPT)
def get(caller: Caller, sandbox_id: str, query: dict[str, Any]) -> SandboxView:
    """One sandbox, a stopped one too, so that whoever polls sees how its boot ended; with `waitFor`
    once it has that status."""
    wanted = query["wait_for"]
    if wanted is None:
        return find.get_view_at_call(caller, sandbox_id)
    arrived = waiting.find_arrived(caller, sandbox_id, wanted)
    if arrived is not None:
        return arrived
    enter(STATUS)
    return waiting.wait_for_status(caller, sandbox_id, wanted, query["timeout_s"])


@route(routes, "GET /<sandbox_id>/usage", accepts=ACCOUNTS, answers=UsageAnswer, admission=PROMPT)
def get_usage(caller: Caller, sandbox_id: str) -> UsageView:
    """What a sandbox has used, in whatever state it is."""
    return usage.get_view(caller, sandbox_id)


@route(routes, "DELETE /<sandbox_id>", accepts=ACCOUNTS, answers=SandboxAnswer, errors=(409,),
       admission=LIFECYCLE)
def delete(caller: Caller, sandbox_id: str) -> SandboxView:
    """Tear a sandbox down; returns once it is stopped."""
    return lifecycle.delete(get_deps(), caller, sandbox_id)
