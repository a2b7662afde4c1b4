"""Sign in, sign out, user tokens, public keys, revoked tokens (contract, Identity host
endpoints)."""
from dataclasses import dataclass

from flask import Blueprint, Flask, Response, current_app, jsonify, request

from app.http import bodies
from app.http.answers import answers
from app.http.credentials import ADMIN, PUBLIC, SESSION, accepts, current_owner
from app.identity.sessions import Sessions
from app.identity.signing_keys import KeyDirectory, as_jwk
from app.schemas.answers import answer_of
from app.schemas.identity import (
    AccountAnswer,
    KeySetAnswer,
    LoginBody,
    LogoutBody,
    RevokeBody,
    RevokedTokensAnswer,
    ServiceTokenRecordAnswer,
    TokenAnswer,
    TokenBody,
)
from config.settings import Settings
from services.accounts import sign_in_throttle, tokens, users

routes = Blueprint("identity", __name__)
_KEY = "svc-identity"


@dataclass(frozen=True)
class Parts:
    """What the routes of the identity host use."""

    settings: Settings
    keys: KeyDirectory
    sessions: Sessions


def attach(app: Flask, parts: Parts) -> None:
    """Make `parts` what the routes find inside this app."""
    app.extensions[_KEY] = parts


def _parts() -> Parts:
    parts: Parts = current_app.extensions[_KEY]
    return parts


@routes.before_request
def check_origin() -> None:
    """Keep pages of other sites out, before anything else of the request counts."""
    _parts().sessions.check_origin(request)


@routes.post("/login")
@accepts(PUBLIC)
@answers(200, AccountAnswer, body=LoginBody, errors=(401, 403, 429, 503),
         example={"email": "alice@example.test", "password": "..."})
def login() -> Response:
    """Start a session: the answer sets its cookie."""
    body, address = bodies.load(LoginBody()), request.remote_addr or ""
    sign_in_throttle.pay(body["email"], address)
    user = users.sign_in(body["email"], body["password"])
    sign_in_throttle.refund(body["email"], address)
    response = jsonify(answer_of(AccountAnswer).dump(user))
    _parts().sessions.start(request, response, user)
    return response


@routes.post("/logout")
@accepts(PUBLIC)
@answers(204, body=LogoutBody, errors=(403, 503))
def logout() -> tuple[Response, int]:
    """End the session of this browser; without one that is no error."""
    bodies.load(LogoutBody())
    response = Response(status=204)
    _parts().sessions.end(request, response)
    return response, 204


@routes.post("/token")
@accepts(SESSION)
@answers(200, TokenAnswer, body=TokenBody, example={"appId": "dashboard"})
def token() -> Response:
    """A short-lived token that acts as the user of the session."""
    parts, owner, body = _parts(), current_owner(), bodies.load(TokenBody())
    minted = tokens.mint_user_token(parts.settings, parts.keys.get_signing(), owner, body["app_id"])
    return jsonify(answer_of(TokenAnswer).dump(minted))


@routes.get("/.well-known/jwks.json")
@accepts(PUBLIC)
@answers(200, KeySetAnswer)
def jwks() -> Response:
    """The public keys that verify tokens, those included that will sign soon."""
    keys = [as_jwk(key) for key in _parts().keys.list_public()]
    response = jsonify(answer_of(KeySetAnswer).dump(keys))
    response.headers["Cache-Control"] = "public, max-age=60"
    return response


@routes.get("/tokens/revoked")
@accepts(PUBLIC)
@answers(200, RevokedTokensAnswer, errors=(503,))
def revoked() -> Response:
    """The service tokens that were revoked before their end; contract: cached at the edge for 10
    s."""
    response = jsonify(answer_of(RevokedTokensAnswer).dump(tokens.list_revoked()))
    response.headers["Cache-Control"] = "public, max-age=10"
    return response


@routes.post("/admin/service-token/revoke")
@accepts(ADMIN)
@answers(200, ServiceTokenRecordAnswer, body=RevokeBody, errors=(404,), example={"jti": "..."})
def revoke_service_token() -> Response:
    """End a service token for good; consumers know within their poll and the edge cache."""
    body = bodies.load(RevokeBody())
    return jsonify(answer_of(ServiceTokenRecordAnswer).dump(tokens.revoke(body["jti"])))
