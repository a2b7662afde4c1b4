"""Snapshots: taken of a sandbox, listed, looked up, deleted, and forked."""
from typing import Any

from flask import Blueprint, Response

from app.api.sandboxes import await_boot
from app.http.admission import LIFECYCLE
from app.http.credentials import ACCOUNTS
from app.http.route import route
from app.schemas.paging import PageQuery
from app.schemas.sandboxes import SandboxAnswer
from app.schemas.snapshots import (
    ArchiveBody,
    ForkBody,
    SnapshotAnswer,
    SnapshotBody,
    SnapshotFork,
    SnapshotForkBody,
    SnapshotListAnswer,
)
from app.wiring import get_deps
from models.users import User
from services.sandboxes.caller import Caller
from services.sandboxes.copies import capture, forks
from services.sandboxes.requests import CaptureRequest, LaunchOptions
from services.sandboxes.views import SandboxView
from services.snapshots import deletion, find, listing
from services.snapshots.listing import SnapshotPage
from services.snapshots.views import SnapshotView

routes = Blueprint("snapshots", __name__, url_prefix="/v1")


@route(routes, "POST /sandboxes/<sandbox_id>/snapshot", accepts=ACCOUNTS, status=201,
       answers=SnapshotAnswer, body=SnapshotBody, errors=(409,), admission=LIFECYCLE)
def snapshot(caller: Caller, sandbox_id: str, body: CaptureRequest) -> SnapshotView:
    """Capture a sandbox, which goes on; returns once the snapshot is durable on its node."""
    return capture.take(get_deps(), caller, sandbox_id, body)


@route(routes, "POST /sandboxes/<sandbox_id>/filesystem-snapshot",
       "POST /sandboxes/<sandbox_id>/tarball", accepts=ACCOUNTS, status=201, answers=SnapshotAnswer,
       body=ArchiveBody, errors=(409,))
def archive(caller: Caller, sandbox_id: str, body: CaptureRequest) -> SnapshotView:
    """Capture the project directory of a running sandbox; returns once it is in the object
    store."""
    return capture.take(get_deps(), caller, sandbox_id, body)


@route(routes, "POST /sandboxes/<sandbox_id>/fork", accepts=ACCOUNTS, status=201,
       answers=SandboxAnswer, body=ForkBody, errors=(402, 409), admission=LIFECYCLE)
def fork_sandbox(caller: Caller, sandbox_id: str, body: LaunchOptions, wait_s: int | None,
                 response: Response) -> SandboxView:
    """Start a copy of a running or sleeping sandbox; answers before it has booted, unless it is
    preferred to wait."""
    return await_boot(forks.of_sandbox(get_deps(), caller, sandbox_id, body), wait_s, response)


@route(routes, "POST /sandboxes/fork", accepts=ACCOUNTS, status=201, answers=SandboxAnswer,
       body=SnapshotForkBody, errors=(402, 404, 409), example={"snapshotId": "snap_..."})
def fork_snapshot(caller: Caller, body: SnapshotFork, wait_s: int | None,
                  response: Response) -> SandboxView:
    """Start a sandbox from a snapshot; answers before it has booted, unless it is preferred to
    wait."""
    made = forks.of_snapshot(get_deps(), caller, body.snapshot_id, body.options,
                             idempotency_key=body.idempotency_key)
    return await_boot(made, wait_s, response)


@route(routes, "GET /snapshots", accepts=ACCOUNTS, answers=SnapshotListAnswer, query=PageQuery)
def list_page(owner: User, query: dict[str, Any]) -> SnapshotPage:
    """The owner's finished snapshots, newest first."""
    return listing.list_page(owner, **query)


@route(routes, "GET /snapshots/<snapshot_id>", accepts=ACCOUNTS, answers=SnapshotAnswer,
       errors=(409,))
def get(owner: User, snapshot_id: str) -> SnapshotView:
    """One snapshot; 409 while it is being captured."""
    return find.get_view(owner, snapshot_id)


@route(routes, "DELETE /snapshots/<snapshot_id>", accepts=ACCOUNTS, answers=SnapshotAnswer,
       errors=(409,))
def remove(owner: User, snapshot_id: str) -> SnapshotView:
    """Delete a snapshot that nothing stands on; its files go within moments. Repeatable."""
    return deletion.delete_owned(get_deps(), owner, snapshot_id)
