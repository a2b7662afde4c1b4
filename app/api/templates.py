"""The templates registry: publish, look up, take back."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.answers import answers
from app.http.credentials import API_KEY, SERVICE, USER_JWT, accepts, current_namespace
from app.schemas.answers import answer_of
from app.schemas.templates import TemplateAnswer, TemplateBody
from services.templates import registry

routes = Blueprint("templates", __name__, url_prefix="/v1/templates/<template_id>")


@routes.post("/latest")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, TemplateAnswer)
@answers(201, TemplateAnswer, body=TemplateBody, errors=(409,), example={"snapshotId": "snap_..."})
def publish(template_id: str) -> tuple[Response, int]:
    """Publish a snapshot under a name; 200 instead of 201 if just that was published already."""
    namespace, release = current_namespace(), bodies.load(TemplateBody())
    published = registry.publish(namespace, template_id, release)
    shown = answer_of(TemplateAnswer).dump(published.template)
    return jsonify(shown), 201 if published.made else 200


@routes.get("/latest")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, TemplateAnswer, errors=(400,))
def get(template_id: str) -> Response:
    """The template of this name, or the version of it, in the caller's own namespace."""
    return jsonify(answer_of(TemplateAnswer).dump(registry.get(current_namespace(), template_id)))


@routes.delete("/latest")
@accepts(API_KEY, USER_JWT, SERVICE)
@answers(200, TemplateAnswer, errors=(400,))
def delete(template_id: str) -> Response:
    """Take a template back; sandboxes made from it go on."""
    deleted = registry.delete(current_namespace(), template_id)
    return jsonify(answer_of(TemplateAnswer).dump(deleted))
