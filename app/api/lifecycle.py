"""Hibernate, wake and extend; `/pause` and `/resume` are other names of the first two."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.admission import LIFECYCLE, PROMPT, lane
from app.http.answers import answers
from app.http.credentials import API_KEY, SERVICE, USER_JWT, accepts, current_owner, pinned_node
from app.schemas.answers import answer_of
from app.schemas.sandboxes import ExtendBody, HibernateBody, SandboxAnswer, WakeBody
from app.wiring import get_deps
from services.sandboxes import lifecycle

routes = Blueprint("lifecycle", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@routes.post("/hibernate")
@routes.post("/pause")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, SandboxAnswer, body=HibernateBody, errors=(409, 421))
@lane(LIFECYCLE)
def hibernate(sandbox_id: str) -> Response:
    """Put a sandbox to sleep; returns once it is hibernated."""
    owner, _ = current_owner(), bodies.load(HibernateBody())
    view = lifecycle.hibernate(get_deps(), owner, sandbox_id, pinned_node=pinned_node())
    return jsonify(answer_of(SandboxAnswer).dump(view))


@routes.post("/wake")
@routes.post("/resume")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, SandboxAnswer, body=WakeBody, errors=(409, 421), example={"ports": [3000]})
@lane(LIFECYCLE)
def wake(sandbox_id: str) -> Response:
    """Resume a sandbox; returns once it is running."""
    owner, body = current_owner(), bodies.load(WakeBody())
    view = lifecycle.wake(get_deps(), owner, sandbox_id, pinned_node=pinned_node(), **body)
    return jsonify(answer_of(SandboxAnswer).dump(view))


@routes.post("/extend")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, SandboxAnswer, body=ExtendBody, errors=(409, 421), example={"timeout": 3600})
@lane(PROMPT)
def extend(sandbox_id: str) -> Response:
    """Restart the idle clock, with a new idle timeout if the body has one."""
    owner, body = current_owner(), bodies.load(ExtendBody())
    view = lifecycle.extend(owner, sandbox_id, body["timeout"], pinned_node=pinned_node())
    return jsonify(answer_of(SandboxAnswer).dump(view))
