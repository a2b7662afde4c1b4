"""The address of a sandbox's shell on this host; the shell itself is the work of the shell process
(`app/shell/`), which is given every WebSocket that arrives here."""
from typing import NoReturn

from flask import Blueprint

from app.http.admission import PROMPT
from app.http.credentials import ACCOUNTS
from app.http.plain_shell import refuse_plain
from app.http.route import route
from services.sandboxes.caller import Caller

routes = Blueprint("shells", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@route(routes, "GET /shell", accepts=ACCOUNTS, status=426, errors=(400, 409, 410, 503),
       admission=PROMPT)
def shell(caller: Caller, sandbox_id: str) -> NoReturn:
    """Open an interactive shell: a WebSocket of the subprotocol svc.shell.v1 (docs/shell.md)."""
    refuse_plain(caller, sandbox_id)
