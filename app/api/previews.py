"""The address at which a port of a sandbox is found on the web."""
from flask import Blueprint

from app.http.admission import PROMPT
from app.http.bodies import reading
from app.http.credentials import ACCOUNTS
from app.http.route import route
from app.schemas.sandboxes import PreviewAnswer, PreviewTarget
from app.wiring import get_deps
from services.previews import urls
from services.previews.urls import Preview
from services.sandboxes.caller import Caller

routes = Blueprint("previews", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@route(routes, "GET /url/<port>", accepts=ACCOUNTS, answers=PreviewAnswer, errors=(400, 409),
       admission=PROMPT)
def get_url(caller: Caller, sandbox_id: str, port: str) -> Preview:
    """The preview URL of any port of the sandbox, in `ports` or not. A request there wakes it."""
    target = reading.load_path(PreviewTarget(), port=port)
    return urls.get_preview(get_deps(), caller, sandbox_id, target["port"])
