"""Create, list, get and delete."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.admission import LIFECYCLE, PROMPT, lane
from app.http.answers import answers
from app.http.credentials import (
    API_KEY,
    SERVICE,
    USER_JWT,
    accepts,
    current_kind,
    current_owner,
    pinned_node,
)
from app.schemas.answers import answer_of
from app.schemas.sandboxes import (
    CreateBody,
    ListQuery,
    SandboxAnswer,
    SandboxListAnswer,
    UsageAnswer,
)
from app.wiring import get_deps
from services.sandboxes import create as sandboxes
from services.sandboxes import lifecycle, listing, usage

routes = Blueprint("sandboxes", __name__, url_prefix="/v1/sandboxes")


@routes.post("")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(201, SandboxAnswer, body=CreateBody, errors=(402, 404, 409, 421),
         example={"ports": [3000]})
def create() -> tuple[Response, int]:
    """Start a sandbox; answers before it has booted."""
    owner, request = current_owner(), bodies.load(CreateBody())
    view = sandboxes.create(get_deps(), owner, request, kind=current_kind(),
                            pinned_node=pinned_node())
    return jsonify(answer_of(SandboxAnswer).dump(view)), 201


@routes.get("")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, SandboxListAnswer, query=ListQuery)
def list_page() -> Response:
    """The owner's sandboxes, newest first."""
    owner, query = current_owner(), bodies.load_query(ListQuery())
    return jsonify(answer_of(SandboxListAnswer).dump(listing.list_page(owner, **query)))


@routes.get("/<sandbox_id>")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, SandboxAnswer, errors=(421,))
@lane(PROMPT)
def get(sandbox_id: str) -> Response:
    """One sandbox, a stopped one too, so that whoever polls sees how its boot ended."""
    view = sandboxes.get_view(current_owner(), sandbox_id, pinned_node=pinned_node())
    return jsonify(answer_of(SandboxAnswer).dump(view))


@routes.get("/<sandbox_id>/usage")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, UsageAnswer, errors=(421,))
@lane(PROMPT)
def get_usage(sandbox_id: str) -> Response:
    """What a sandbox has used, in whatever state it is."""
    view = usage.get_view(current_owner(), sandbox_id, pinned_node=pinned_node())
    return jsonify(answer_of(UsageAnswer).dump(view))


@routes.delete("/<sandbox_id>")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, SandboxAnswer, errors=(409, 421))
@lane(LIFECYCLE)
def delete(sandbox_id: str) -> Response:
    """Tear a sandbox down; returns once it is stopped."""
    view = lifecycle.delete(get_deps(), current_owner(), sandbox_id, pinned_node=pinned_node())
    return jsonify(answer_of(SandboxAnswer).dump(view))
