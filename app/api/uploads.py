"""Upload one file into a sandbox, as a browser does: the raw body, streamed."""
from flask import Blueprint

from app.http.bodies import reading
from app.http.credentials import ACCOUNTS
from app.http.route import route
from app.schemas.files import UploadedAnswer
from app.schemas.uploads import UploadTarget
from app.wiring import get_deps
from services.guest_calls import files
from services.guest_calls.files import Uploaded
from services.sandboxes.caller import Caller

routes = Blueprint("uploads", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


# An address that goes on with a slash after `uploads/` names an absolute path.
@route(routes, "PUT /uploads/<rest:path>", accepts=ACCOUNTS, status=201, answers=UploadedAnswer,
       body="application/octet-stream", errors=(409,))
def upload(caller: Caller, sandbox_id: str, path: str) -> Uploaded:
    """Store the body as a file of the guest, as a whole or not at all."""
    deps, target = get_deps(), reading.load_path(UploadTarget(), path=path)
    size_bytes, content = reading.stream(deps.settings.upload_max_bytes)
    return files.upload(deps, caller, sandbox_id, target["path"], content, size_bytes)
