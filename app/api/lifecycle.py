"""Hibernate, wake and extend; `/pause` and `/resume` are other names of the first two."""
from typing import Any

from flask import Blueprint

from app.http.admission import LIFECYCLE, PROMPT
from app.http.credentials import ACCOUNTS
from app.http.route import route
from app.schemas.sandboxes import ExtendBody, HibernateBody, SandboxAnswer, WakeBody
from app.wiring import get_deps
from services.sandboxes import lifecycle
from services.sandboxes.caller import Caller
from services.sandboxes.views import SandboxView

routes = Blueprint("lifecycle", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@route(routes, "POST /hibernate", "POST /pause", accepts=ACCOUNTS, answers=SandboxAnswer,
       body=HibernateBody, errors=(409,), admission=LIFECYCLE)
def hibernate(caller: Caller, sandbox_id: str) -> SandboxView:
    """Put a sandbox to sleep; returns once it is hibernated."""
    return lifecycle.hibernate(get_deps(), caller, sandbox_id)


@route(routes, "POST /wake", "POST /resume", accepts=ACCOUNTS, answers=SandboxAnswer,
       body=WakeBody, errors=(409,), admission=LIFECYCLE, example={"ports": [3000]})
def wake(caller: Caller, sandbox_id: str, body: dict[str, Any]) -> SandboxView:
    """Resume a sandbox; returns once it is running."""
    return lifecycle.wake(get_deps(), caller, sandbox_id, **body)


@route(routes, "POST /extend", accepts=ACCOUNTS, answers=SandboxAnswer, body=ExtendBody,
       errors=(409,), admission=PROMPT, example={"timeout": 3600})
def extend(caller: Caller, sandbox_id: str, body: dict[str, Any]) -> SandboxView:
    """Restart the idle clock, with a new idle timeout if the body has one."""
    return lifecycle.extend(caller, sandbox_id, body["timeout"])
