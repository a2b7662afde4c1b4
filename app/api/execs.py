"""Run a command in a sandbox."""
from flask import Blueprint

from app.http.bodies.buffers import Account
from app.http.credentials import ACCOUNTS
from app.http.route import route
from app.schemas.execs import ExecBody, ExecResultAnswer
from app.wiring import get_deps
from guest.client.results import ExecResult
from services.guest_calls import execs, guest
from services.protocols import ExecRequest
from services.sandboxes.caller import Caller

routes = Blueprint("execs", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@route(routes, "POST /exec", accepts=ACCOUNTS, about=guest.WITH_ADDRESS, answers=ExecResultAnswer,
       body=ExecBody, errors=(409,), example={"cmd": "uname -a"})
def run(caller: Caller, sandbox_id: str, body: ExecRequest, account: Account) -> ExecResult:
    """Run a command as root and answer with its output once it has ended."""
    return execs.run(get_deps(), caller, sandbox_id, body, account.take)
