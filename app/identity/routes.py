"""Sign in, sign out, user tokens, public keys, revoked tokens (contract, Identity host
endpoints)."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, Flask, Response, current_app, request

from app.http.bodies.limits import IDENTITY_BYTES
from app.http.credentials import ADMIN, PUBLIC, SESSION
from app.http.route import route
from app.identity.origin_check import OriginCheck
from app.identity.sessions import Sessions
from app.identity.sign_in_places import SignInPlaces
from app.identity.signing_keys import KeyDirectory
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
from models.users import ServiceToken, User
from services.accounts import sign_in_throttle, tokens, users
from services.accounts.json_web_keys import as_jwk
from services.accounts.tokens import Token
from services.errors import Unavailable

routes = Blueprint("identity", __name__)
_KEY = "svc-identity"


@dataclass(frozen=True)
class Parts:
    """What the routes of the identity host use."""

    settings: Settings
    keys: KeyDirectory
    sessions: Sessions
    origins: OriginCheck
    places: SignInPlaces


def attach(app: Flask, parts: Parts) -> None:
    """Make `parts` what the routes find inside this app."""
    app.extensions[_KEY] = parts


def _parts() -> Parts:
    parts: Parts = current_app.extensions[_KEY]
    return parts


@routes.before_request
def check_origin() -> None:
    """Keep pages of other sites out, before anything else of the request counts."""
    _parts().origins.check(request)


@route(routes, "POST /login", accepts=(PUBLIC,), answers=AccountAnswer, body=LoginBody,
       body_bytes=IDENTITY_BYTES, errors=(401, 403, 429, 503),
       example={"email": "alice@example.test", "password": "..."})
def login(body: dict[str, Any], response: Response) -> User:
    """Start a session: the answer sets its cookie."""
    address = request.remote_addr or ""
    with _parts().places.place(body["email"], address):
        sign_in_throttle.pay(body["email"], address)
        try:
            user = users.sign_in(body["email"], body["password"])
        except Unavailable:
            sign_in_throttle.refund(body["email"], address, forgets=False)
            raise
    sign_in_throttle.refund(body["email"], address, forgets=True)
    _parts().sessions.start(request, response, user)
    return user


@route(routes, "POST /logout", accepts=(PUBLIC,), status=204, body=LogoutBody,
       body_bytes=IDENTITY_BYTES, errors=(403, 503))
def logout(response: Response) -> None:
    """End the session of this browser; without one that is no error."""
    _parts().sessions.end(request, response)


@route(routes, "POST /token", accepts=(SESSION,), answers=TokenAnswer, body=TokenBody,
       body_bytes=IDENTITY_BYTES, example={"appId": "dashboard"})
def token(owner: User, body: dict[str, Any]) -> Token:
    """A short-lived token that acts as the user of the session."""
    parts = _parts()
    return tokens.mint_user_token(parts.settings, parts.keys.get_signing(), owner, body["app_id"])


@route(routes, "GET /.well-known/jwks.json", accepts=(PUBLIC,), answers=KeySetAnswer)
def jwks(response: Response) -> list[Mapping[str, str]]:
    """The public keys that verify tokens, those included that will sign soon."""
    response.headers["Cache-Control"] = "public, max-age=60"
    return [as_jwk(key) for key in _parts().keys.list_public()]


@route(routes, "GET /tokens/revoked", accepts=(PUBLIC,), answers=RevokedTokensAnswer,
       errors=(503,))
def revoked(response: Response) -> list[str]:
    """The service tokens that were revoked before their end; contract: cached at the edge for 10
    s."""
    response.headers["Cache-Control"] = "public, max-age=10"
    return tokens.list_revoked()


@route(routes, "POST /admin/service-token/revoke", accepts=(ADMIN,),
       answers=ServiceTokenRecordAnswer, body=RevokeBody, body_bytes=IDENTITY_BYTES, errors=(404,),
       example={"jti": "..."})
def revoke_service_token(body: dict[str, Any]) -> ServiceToken:
    """End a service token for good; consumers know within their poll and the edge cache."""
    return tokens.revoke(body["jti"])
