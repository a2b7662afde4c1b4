"""Run a command in a sandbox."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.answers import answers
from app.http.credentials import API_KEY, SERVICE, USER_JWT, accepts, current_owner, pinned_node
from app.schemas.answers import answer_of
from app.schemas.execs import ExecBody, ExecResultAnswer
from app.wiring import get_deps
from services.guest_calls import execs

routes = Blueprint("execs", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@routes.post("/exec")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, ExecResultAnswer, body=ExecBody, errors=(409, 421), example={"cmd": "uname -a"})
def run(sandbox_id: str) -> Response:
    """Run a command as root and answer with its output once it has ended."""
    owner, request = current_owner(), bodies.load(ExecBody())
    outcome = execs.run(get_deps(), owner, sandbox_id, request, pinned_node=pinned_node())
    return jsonify(answer_of(ExecResultAnswer).dump(outcome))
