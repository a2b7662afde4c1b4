"""API keys of a user; made and revoked with a dashboard token, never with a key (contract, API-key
management)."""
from typing import Any

from flask import Blueprint

from app.http.credentials import SERVICE, USER_JWT
from app.http.route import route
from app.schemas.api_keys import ApiKeyBody, ApiKeyListAnswer, ApiKeyRecordAnswer, NewApiKeyAnswer
from app.wiring import get_deps
from models.users import ApiKey, User
from services.accounts import api_keys
from services.accounts.api_keys import NewKey

routes = Blueprint("api_keys", __name__, url_prefix="/v1/api-keys")


@route(routes, "POST", accepts=(USER_JWT, SERVICE), status=201, answers=NewApiKeyAnswer,
       body=ApiKeyBody, errors=(409, 429), example={"name": "my laptop"})
def create(owner: User, body: dict[str, Any]) -> NewKey:
    """Make a key; its secret is in this answer and nowhere else."""
    return api_keys.create(get_deps().settings, owner, body["name"], body["expires_at"])


@route(routes, "GET", accepts=(USER_JWT, SERVICE), answers=ApiKeyListAnswer)
def list_all(owner: User) -> list[ApiKey]:
    """Every key of the user, without secrets."""
    return api_keys.list_all(owner)


@route(routes, "DELETE /<key_id>", accepts=(USER_JWT, SERVICE), answers=ApiKeyRecordAnswer)
def revoke(owner: User, key_id: str) -> ApiKey:
    """End a key for good."""
    return api_keys.revoke(owner, key_id)
