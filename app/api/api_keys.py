"""API keys of a user; made and revoked with a dashboard token, never with a key (contract, API-key
management)."""
from flask import Blueprint, Response, jsonify

from app.http import bodies
from app.http.answers import answers
from app.http.credentials import SERVICE, USER_JWT, accepts, current_owner
from app.schemas.answers import answer_of
from app.schemas.api_keys import ApiKeyBody, ApiKeyListAnswer, ApiKeyRecordAnswer, NewApiKeyAnswer
from app.wiring import get_deps
from services.accounts import api_keys

routes = Blueprint("api_keys", __name__, url_prefix="/v1/api-keys")


@routes.post("")
@accepts(USER_JWT, SERVICE)
@answers(201, NewApiKeyAnswer, body=ApiKeyBody, errors=(409, 429), example={"name": "my laptop"})
def create() -> tuple[Response, int]:
    """Make a key; its secret is in this answer and nowhere else."""
    owner, body = current_owner(), bodies.load(ApiKeyBody())
    made = api_keys.create(get_deps().settings, owner, body["name"], body["expires_at"])
    return jsonify(answer_of(NewApiKeyAnswer).dump(made)), 201


@routes.get("")
@accepts(USER_JWT, SERVICE)
@answers(200, ApiKeyListAnswer)
def list_all() -> Response:
    """Every key of the user, without secrets."""
    return jsonify(answer_of(ApiKeyListAnswer).dump(api_keys.list_all(current_owner())))


@routes.delete("/<key_id>")
@accepts(USER_JWT, SERVICE)
@answers(200, ApiKeyRecordAnswer)
def revoke(key_id: str) -> Response:
    """End a key for good."""
    return jsonify(answer_of(ApiKeyRecordAnswer).dump(api_keys.revoke(current_owner(), key_id)))
