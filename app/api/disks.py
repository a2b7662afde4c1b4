"""How full the disk of a running sandbox is; growing an older, smaller one."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.admission import LIFECYCLE, lane
from app.http.answers import answers
from app.http.credentials import API_KEY, SERVICE, USER_JWT, accepts, current_owner, pinned_node
from app.schemas.answers import answer_of
from app.schemas.disks import DiskAnswer, GrowBody
from app.wiring import get_deps
from services.guest_calls import disks

routes = Blueprint("disks", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@routes.get("/disk")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, DiskAnswer, errors=(409, 421))
def usage(sandbox_id: str) -> Response:
    """Capacity and usage of the root file system, live."""
    told = disks.usage(get_deps(), current_owner(), sandbox_id, pinned_node=pinned_node())
    return jsonify(answer_of(DiskAnswer).dump(told))


@routes.patch("/disk")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, DiskAnswer, body=GrowBody, errors=(409, 421))
@lane(LIFECYCLE)
def grow(sandbox_id: str) -> Response:
    """Grow the disk to the platform's floor while the sandbox runs."""
    owner, _ = current_owner(), bodies.load(GrowBody())
    told = disks.grow(get_deps(), owner, sandbox_id, pinned_node=pinned_node())
    return jsonify(answer_of(DiskAnswer).dump(told))
