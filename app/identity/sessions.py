"""Dashboard sessions: a signed cookie that names the user, and nothing on the server.

`SVC_SESSION_SECRET` may hold several secrets separated by commas, newest first: the first signs, all verify, so it
can be changed without signing everybody out. The cookie also carries a print of the password's hash, so that a new
password ends every session.
"""
import hashlib
from urllib.parse import urlsplit

from flask import Request, Response
from itsdangerous import BadSignature, URLSafeTimedSerializer

from config.settings import Settings, SettingsError
from models.users import User
from services import users
from services.errors import Unauthenticated

COOKIE = "svc_session"
LIFETIME_S = 14 * 24 * 3600


class Sessions:
    """Writes and reads the cookie."""

    def __init__(self, settings: Settings) -> None:
        secrets = [secret.strip() for secret in settings.session_secret.split(",") if secret.strip()]
        if not secrets:
            raise SettingsError("SVC_SESSION_SECRET must be set for the identity host. See config/example.env.")
        # itsdangerous signs with the last key of its list.
        self._serializer = URLSafeTimedSerializer(secrets[::-1], salt="svc-session")
        self._secure = urlsplit(settings.auth_url).scheme == "https"

    def start(self, response: Response, user: User) -> None:
        """Set the cookie of a new session."""
        value = self._serializer.dumps([user.id, _print(user)])
        response.set_cookie(COOKIE, value, max_age=LIFETIME_S, httponly=True, samesite="Lax", secure=self._secure)

    def end(self, response: Response) -> None:
        """Remove the cookie."""
        response.delete_cookie(COOKIE, httponly=True, samesite="Lax", secure=self._secure)

    def get_user(self, request: Request) -> User:
        """Whose session this is; raises Unauthenticated."""
        try:
            user_id, print_then = self._serializer.loads(request.cookies.get(COOKIE, ""), max_age=LIFETIME_S)
        except (BadSignature, ValueError, TypeError) as error:
            raise Unauthenticated("There is no valid session; sign in first.") from error
        user = users.find(user_id)
        if user is None or print_then != _print(user):
            raise Unauthenticated("The session has ended; sign in again.")
        return user


def _print(user: User) -> str:
    return hashlib.sha256(user.password_hash.encode()).hexdigest()[:16]
