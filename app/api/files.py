"""Write a batch of files into a sandbox, read one out of it."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.answers import ListOf, answers
from app.http.credentials import API_KEY, SERVICE, USER_JWT, accepts, current_owner, pinned_node
from app.schemas.answers import answer_of
from app.schemas.files import ITEMS_MAX, FileContentAnswer, FileItemBody, FileQuery
from app.wiring import get_deps
from services.guest_calls import files

routes = Blueprint("files", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@routes.post("/files")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(204, body=ListOf(FileItemBody, ITEMS_MAX), errors=(409, 421),
         example=[{"path": "/home/user/hello.txt", "content": "aGVsbG8K"}])
def write(sandbox_id: str) -> tuple[str, int]:
    """Write every file of the body, in order."""
    owner, items = current_owner(), bodies.load_list(FileItemBody(), most=ITEMS_MAX)
    files.write(get_deps(), owner, sandbox_id, items, pinned_node=pinned_node())
    return "", 204


@routes.get("/files")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, FileContentAnswer, query=FileQuery, errors=(409, 413, 421))
def read(sandbox_id: str) -> Response:
    """The content of the file at `?path=`."""
    owner, query = current_owner(), bodies.load_query(FileQuery())
    content = files.read(get_deps(), owner, sandbox_id, query["path"], pinned_node=pinned_node())
    return jsonify(answer_of(FileContentAnswer).dump(content))
