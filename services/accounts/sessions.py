"""Signed-in browsers: one row each, so that signing out ends a session wherever its cookie was
copied to."""
import hashlib
import secrets
from datetime import timedelta

from models.database import connection, now
from models.users import Session, User
from services.errors import Unauthenticated

LIFETIME = timedelta(days=14)
# Of one account; who begins another ends the oldest.
SESSIONS_MAX = 100


def start(user: User) -> str:
    """Begin a session of `user`, as just signed in, and return its id, which is stored as a hash
    only."""
    session_id, present = secrets.token_urlsafe(32), now()
    with connection():
        Session.create(
            id_hash=_digest(session_id),
            user=user.id,
            password_print=_password_digest(user),
            created_at=present,
            expires_at=present + LIFETIME,
        )
        newest = (Session.select(Session.id_hash).where(Session.user == user.id)
                  .order_by(Session.created_at.desc()).limit(SESSIONS_MAX))
        Session.delete().where((Session.user == user.id)
                               & Session.id_hash.not_in(newest)).execute()
    return session_id


def get_user(session_id: str) -> User:
    """Whose session this is; raises Unauthenticated if it has ended, by time, sign-out, password or
    operator."""
    with connection():
        session = (
            Session.select(Session, User)
            .join(User)
            .where((Session.id_hash == _digest(session_id)) & (Session.expires_at > now()))
            .get_or_none()
        )
    if (session is None or session.user.disabled_at is not None
            or session.password_print != _password_digest(session.user)):
        raise Unauthenticated("The session has ended; sign in again.")
    user: User = session.user
    return user


def end(session_id: str) -> None:
    """End a session for good; one that is not there is no error."""
    with connection():
        Session.delete().where(Session.id_hash == _digest(session_id)).execute()


def end_all(user: User) -> int:
    """End every session of `user`; returns how many there were."""
    with connection():
        return int(Session.delete().where(Session.user == user.id).execute())


def forget_ended() -> None:
    """Remove the rows of sessions whose time is over."""
    with connection():
        Session.delete().where(Session.expires_at <= now()).execute()


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


def _password_digest(user: User) -> str:
    """Changes with the password: a session begun with the old one while it was being changed is
    none."""
    return hashlib.sha256(user.password_hash.encode()).hexdigest()[:16]
