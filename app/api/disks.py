"""How full the disk of a running sandbox is; growing an older, smaller one."""
from flask import Blueprint

from app.http.admission import LIFECYCLE
from app.http.credentials import ACCOUNTS
from app.http.route import route
from app.schemas.disks import DiskAnswer, GrowBody
from app.wiring import get_deps
from guest.client.results import DiskUsage
from services.guest_calls import disk_growth, disk_usage
from services.sandboxes.caller import Caller

routes = Blueprint("disks", __name__, url_prefix="/v1/sandboxes/<sandbox_id>")


@route(routes, "GET /disk", accepts=ACCOUNTS, answers=DiskAnswer, errors=(409,))
def usage(caller: Caller, sandbox_id: str) -> DiskUsage:
    """Capacity and usage of the root file system, live."""
    return disk_usage.usage(get_deps(), caller, sandbox_id)


@route(routes, "PATCH /disk", accepts=ACCOUNTS, answers=DiskAnswer, body=GrowBody, errors=(409,),
       admission=LIFECYCLE)
def grow(caller: Caller, sandbox_id: str) -> DiskUsage:
    """Grow the disk to the platform's floor while the sandbox runs."""
    return disk_growth.grow(get_deps(), caller, sandbox_id)
