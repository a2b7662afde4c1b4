"""Snapshots and forks."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.admission import LIFECYCLE, lane
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
from app.schemas.sandboxes import SandboxAnswer
from app.schemas.snapshots import (
    ArchiveBody,
    ForkBody,
    SnapshotAnswer,
    SnapshotBody,
    SnapshotForkBody,
)
from app.wiring import get_deps
from models.states import SnapshotKind
from services.sandboxes import capture, forks

routes = Blueprint("snapshots", __name__, url_prefix="/v1/sandboxes")


@routes.post("/<sandbox_id>/snapshot")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(201, SnapshotAnswer, body=SnapshotBody, errors=(409, 421))
@lane(LIFECYCLE)
def snapshot(sandbox_id: str) -> tuple[Response, int]:
    """Capture a sandbox, which goes on; returns once the snapshot is durable on its node."""
    owner, body = current_owner(), bodies.load(SnapshotBody())
    view = capture.take(get_deps(), owner, sandbox_id, pinned_node=pinned_node(), **body)
    return jsonify(answer_of(SnapshotAnswer).dump(view)), 201


@routes.post("/<sandbox_id>/filesystem-snapshot")
@routes.post("/<sandbox_id>/tarball")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(201, SnapshotAnswer, body=ArchiveBody, errors=(409, 421))
def archive(sandbox_id: str) -> tuple[Response, int]:
    """Capture the project directory of a running sandbox; returns once it is in the object
    store."""
    owner, body = current_owner(), bodies.load(ArchiveBody())
    view = capture.take(get_deps(), owner, sandbox_id, kind=SnapshotKind.FILES_ONLY,
                        pinned_node=pinned_node(), **body)
    return jsonify(answer_of(SnapshotAnswer).dump(view)), 201


@routes.post("/<sandbox_id>/fork")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(201, SandboxAnswer, body=ForkBody, errors=(402, 409, 421))
@lane(LIFECYCLE)
def fork_sandbox(sandbox_id: str) -> tuple[Response, int]:
    """Start a copy of a running or sleeping sandbox; answers before it has booted."""
    owner, options = current_owner(), bodies.load(ForkBody())
    view = forks.of_sandbox(
        get_deps(), owner, sandbox_id, options, kind=current_kind(), pinned_node=pinned_node()
    )
    return jsonify(answer_of(SandboxAnswer).dump(view)), 201


@routes.post("/fork")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(201, SandboxAnswer, body=SnapshotForkBody, errors=(402, 404, 409, 421),
         example={"snapshotId": "snap_..."})
def fork_snapshot() -> tuple[Response, int]:
    """Start a sandbox from a snapshot; answers before it has booted."""
    owner, body = current_owner(), bodies.load(SnapshotForkBody())
    view = forks.of_snapshot(
        get_deps(),
        owner,
        body.snapshot_id,
        body.options,
        idempotency_key=body.idempotency_key,
        kind=current_kind(),
        pinned_node=pinned_node(),
    )
    return jsonify(answer_of(SandboxAnswer).dump(view)), 201
