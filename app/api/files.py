"""Write a batch of files into a sandbox, read one out of it."""
from collections.abc import Iterator
from typing import Any

from flask import Blueprint

from app.http.bodies.buffers import Account
from app.http.bodies.limits import WRITE_BYTES
from app.http.credentials import ACCOUNTS
from app.http.route import ListOf, route
from app.schemas.files import ITEMS_MAX, FileContentAnswer, FileItemBody, FileQuery
from app.wiring import get_deps
from services.guest_calls import files, guest
from services.guest_calls.files import FileItem
from services.sandboxes.caller import Caller

routes = Blueprint("files", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")
# A read is a stream; so much of it is in memory at a time.
READ_ROOM_BYTES = 4 * 1024 * 1024


@route(routes, "POST /files", accepts=ACCOUNTS, about=guest.WITH_ADDRESS, status=204,
       body=ListOf(FileItemBody, ITEMS_MAX), body_bytes=WRITE_BYTES, errors=(409,),
       example=[{"path": "/home/user/hello.txt", "content": "aGVsbG8K"}])
def write(caller: Caller, sandbox_id: str, body: list[FileItem]) -> None:
    """Write every file of the body, in order."""
    files.write(get_deps(), caller, sandbox_id, body)


@route(routes, "GET /files", accepts=ACCOUNTS, about=guest.WITH_ADDRESS,
       answers=FileContentAnswer, query=FileQuery, errors=(409, 413))
def read(caller: Caller, sandbox_id: str, query: dict[str, Any],
         account: Account) -> Iterator[bytes]:
    """The content of the file at `?path=`."""
    account.require(READ_ROOM_BYTES)
    return files.read(get_deps(), caller, sandbox_id, query["path"])
