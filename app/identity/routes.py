"""Sign in, sign out, user tokens, public keys, revoked tokens (contract, Identity host endpoints)."""
from dataclasses import dataclass

from flask import Blueprint, Flask, Response, current_app, jsonify, request

from app import bodies, serializers
from app.auth import PUBLIC, accepts
from app.identity.sessions import Sessions
from app.identity.throttle import LoginThrottle
from app.schemas.identity import LoginBody, LogoutBody, TokenBody
from app.signing_keys import KeyDirectory, as_jwk
from config.settings import Settings
from services import tokens, users
from services.errors import Unauthenticated

routes = Blueprint("identity", __name__)
_KEY = "svc-identity"


@dataclass(frozen=True)
class Parts:
    """What the routes of the identity host use."""

    settings: Settings
    keys: KeyDirectory
    sessions: Sessions
    throttle: LoginThrottle


def attach(app: Flask, parts: Parts) -> None:
    """Make `parts` what the routes find inside this app."""
    app.extensions[_KEY] = parts


def _parts() -> Parts:
    parts: Parts = current_app.extensions[_KEY]
    return parts


@routes.post("/login")
@accepts(PUBLIC)
def login() -> Response:
    """Start a session: the answer sets its cookie."""
    body, parts = bodies.load(LoginBody()), _parts()
    key = f"{request.remote_addr} {body['email'].strip().lower()}"
    parts.throttle.check(key)
    try:
        user = users.sign_in(body["email"], body["password"])
    except Unauthenticated:
        parts.throttle.failed(key)
        raise
    parts.throttle.succeeded(key)
    response = jsonify(serializers.account(user))
    parts.sessions.start(response, user)
    return response


@routes.post("/logout")
@accepts(PUBLIC)
def logout() -> tuple[Response, int]:
    """End the session of this browser; without one that is no error."""
    bodies.load(LogoutBody())
    response = Response(status=204)
    _parts().sessions.end(response)
    return response, 204


@routes.post("/token")
@accepts(PUBLIC)
def token() -> Response:
    """A short-lived token that acts as the user of the session; the cookie is the credential."""
    parts = _parts()
    user = parts.sessions.get_user(request)
    body = bodies.load(TokenBody())
    minted = tokens.mint_user_token(parts.settings, parts.keys.get_signing(), user, body["app_id"])
    return jsonify(serializers.token(minted))


@routes.get("/.well-known/jwks.json")
@accepts(PUBLIC)
def jwks() -> Response:
    """The public keys that verify tokens."""
    response = jsonify(serializers.key_set([as_jwk(key) for key in _parts().keys.list_public()]))
    response.headers["Cache-Control"] = "public, max-age=60"
    return response


@routes.get("/tokens/revoked")
@accepts(PUBLIC)
def revoked() -> Response:
    """The service tokens that were revoked before their end; contract: cached at the edge for 10 s."""
    response = jsonify(serializers.revoked(tokens.list_revoked()))
    response.headers["Cache-Control"] = "public, max-age=10"
    return response
