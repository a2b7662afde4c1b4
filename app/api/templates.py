"""The templates registry: publish, look up, take back."""
from flask import Blueprint, Response

from app.http.credentials import ACCOUNTS
from app.http.route import route
from app.schemas.templates import TemplateAnswer, TemplateBody
from models.templates import Template
from models.users import User
from services.templates import registry
from services.templates.registry import Release

routes = Blueprint("templates", __name__, url_prefix="/v1/templates/<template_id>")


@route(routes, "POST /latest", accepts=ACCOUNTS, status=201, answers=TemplateAnswer,
       also={200: TemplateAnswer}, body=TemplateBody, errors=(409,),
       example={"snapshotId": "snap_..."})
def publish(namespace: User | None, template_id: str, body: Release,
            response: Response) -> Template:
    """Publish a snapshot under a name; 200 instead of 201 if just that was published already."""
    published = registry.publish(namespace, template_id, body)
    if not published.made:
        response.status_code = 200
    return published.template


@route(routes, "GET /latest", accepts=ACCOUNTS, answers=TemplateAnswer, errors=(400,))
def get(namespace: User | None, template_id: str) -> Template:
    """The template of this name, or the version of it, in the caller's own namespace."""
    return registry.get(namespace, template_id)


@route(routes, "DELETE /latest", accepts=ACCOUNTS, answers=TemplateAnswer, errors=(400,))
def delete(namespace: User | None, template_id: str) -> Template:
    """Take a template back; sandboxes made from it go on."""
    return registry.delete(namespace, template_id)
