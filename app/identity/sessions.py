"""Dashboard sessions: a signed cookie that names a session row, and what protects it from other
sites.

`SVC_SESSION_SECRET` may hold several secrets separated by commas, newest first: the first signs,
all verify, so it can be changed without signing everybody out. A page of another site cannot use
the cookie: it is SameSite=Lax, bodies must be JSON, and a browser that names another origin than
ours is refused (`origin_check.py`).
"""
from urllib.parse import urlsplit

from flask import Request, Response
from itsdangerous import BadSignature, URLSafeTimedSerializer

from app.http.credentials import SESSION_COOKIE
from config.settings import Settings, SettingsError
from models.users import User
from services.accounts import sessions
from services.errors import Unauthenticated

COOKIE = SESSION_COOKIE


class Sessions:
    """Writes and reads the cookie."""

    def __init__(self, settings: Settings) -> None:
        secrets = [
            secret.strip() for secret in settings.session_secret.split(",") if secret.strip()
        ]
        if not secrets:
            raise SettingsError(
                "SVC_SESSION_SECRET must be set for the identity host. See config/example.env.")
        # itsdangerous signs with the last key of its list.
        self._serializer = URLSafeTimedSerializer(secrets[::-1], salt="svc-session")
        self._secure = urlsplit(settings.auth_url).scheme == "https"
        # Over TLS the browser itself holds other hosts and paths off a cookie of this name.
        self._name = f"__Host-{COOKIE}" if self._secure else COOKIE

    def start(self, request: Request, response: Response, user: User) -> None:
        """Begin a session in place of the browser's old one, if any, and set its cookie."""
        self._end_row(request)
        value = self._serializer.dumps(sessions.start(user))
        response.set_cookie(self._name, value, max_age=int(sessions.LIFETIME.total_seconds()),
                            httponly=True, samesite="Lax", secure=self._secure)

    def end(self, request: Request, response: Response) -> None:
        """End the browser's session for good, if it has one, and remove the cookie."""
        self._end_row(request)
        response.delete_cookie(self._name, httponly=True, samesite="Lax", secure=self._secure)

    def get_user(self, request: Request) -> User:
        """Whose session this is; raises Unauthenticated."""
        session_id = self._find_id(request)
        if session_id is None:
            raise Unauthenticated("There is no valid session; sign in first.")
        return sessions.get_user(session_id)

    def _end_row(self, request: Request) -> None:
        session_id = self._find_id(request)
        if session_id is not None:
            sessions.end(session_id)

    def _find_id(self, request: Request) -> str | None:
        try:
            session_id = self._serializer.loads(
                request.cookies.get(self._name, ""), max_age=int(sessions.LIFETIME.total_seconds()))
        except (BadSignature, ValueError, TypeError, RecursionError):
            return None
        return session_id if isinstance(session_id, str) else None
