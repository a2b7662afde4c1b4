"""Upload one file into a sandbox, as a browser does: the raw body, streamed."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.answers import answers
from app.http.credentials import API_KEY, SERVICE, USER_JWT, accepts, current_owner, pinned_node
from app.schemas.answers import answer_of
from app.schemas.files import UploadedAnswer
from app.schemas.uploads import UploadTarget
from app.wiring import get_deps
from services.guest_calls import files

routes = Blueprint("uploads", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


# Slashes are not merged: an address that goes on with one after `uploads/` names an absolute path.
@routes.put("/uploads/<rest:path>", merge_slashes=False)
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(201, UploadedAnswer, body="application/octet-stream", errors=(409, 421))
def upload(sandbox_id: str, path: str) -> tuple[Response, int]:
    """Store the body as a file of the guest, as a whole or not at all."""
    owner, deps = current_owner(), get_deps()
    target = bodies.load_path(UploadTarget(), path=path)
    size_bytes, content = bodies.stream(deps.settings.upload_max_bytes)
    done = files.upload(deps, owner, sandbox_id, target["path"], content, size_bytes,
                        pinned_node=pinned_node())
    return jsonify(answer_of(UploadedAnswer).dump(done)), 201
