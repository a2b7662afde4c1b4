"""Who is calling: judges a credential, whatever the server is that it came to.

A service says for whom it acts, or its token names the user; from then on it is that user
(contract, Service tokens 1, 3).
"""
import enum
from collections.abc import Collection
from dataclasses import dataclass

from config.settings import Settings
from models.row import About, ReadAhead
from models.users import User
from services.accounts import api_keys, tokens, users
from services.accounts.tokens import Authority
from services.errors import Forbidden, Unauthenticated


class Credential(enum.Enum):
    """A kind of credential; PUBLIC is none at all."""

    PUBLIC = "no credential"
    API_KEY = "an API key"
    USER_JWT = "a user token"
    SERVICE = "a service token"
    ADMIN = "an administrator's token"
    SESSION = "a session"


@dataclass(frozen=True)
class Principal:
    """The caller: `owner` is whom it acts as, None for a service that acts for nobody."""

    credential: Credential
    subject: str
    owner: User | None
    read_ahead: ReadAhead | None = None

    @property
    def account_id(self) -> str:
        """Of whose share the call takes: the account that it acts as, else the service itself."""
        return str(self.owner.id if self.owner else self.subject)


def secret_of(authorization: str) -> str:
    """The credential in an Authorization header; raises Unauthenticated."""
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated(
            "This route needs a credential: Authorization: Bearer <API key or token>.")
    return secret.strip()


def identify(settings: Settings, authority: Authority, secret: str, on_behalf_of: str | None,
             about: About | None = None) -> Principal:
    """The caller with this credential, and this header X-On-Behalf-Of (None without one: an empty
    one names no account); raises Unauthenticated, Forbidden, Unavailable. What the call is `about`
    is read with an API key."""
    if secret.startswith(api_keys.SECRET_PREFIX):
        return _identify_by_key(secret, about)
    claims = tokens.verify(settings, authority, secret)
    if claims.audience is tokens.Audience.SERVICE and claims.subject == tokens.ADMIN_SUBJECT:
        return Principal(Credential.ADMIN, claims.subject, None)
    if claims.audience is tokens.Audience.SERVICE and not claims.is_of_user:
        return Principal(Credential.SERVICE, claims.subject, _acted_for(on_behalf_of))
    user = users.find(claims.subject)
    if user is None:
        raise Unauthenticated("The account of this token does not exist or is disabled.")
    if claims.audience is tokens.Audience.USER:
        return Principal(Credential.USER_JWT, user.id, user)
    if on_behalf_of is not None and on_behalf_of.strip() != user.id:
        raise Forbidden("X-On-Behalf-Of names another account than the token.")
    return Principal(Credential.SERVICE, user.id, user)


def _identify_by_key(secret: str, about: About | None) -> Principal:
    if about is None:
        owner, read_ahead = api_keys.authenticate(secret), None
    else:
        owner, row = api_keys.authenticate_and_find(secret, about.lookup, about.key)
        read_ahead = ReadAhead(about, row)
    return Principal(Credential.API_KEY, owner.id, owner, read_ahead)


def require(principal: Principal, accepted: Collection[Credential]) -> None:
    """Raise Forbidden unless the credential is of an accepted kind."""
    if principal.credential not in accepted:
        raise Forbidden(f"This route does not take {principal.credential.value}.")


def _acted_for(user_id: str | None) -> User | None:
    if user_id is None:
        return None
    user = users.find(user_id.strip())
    if user is None:
        raise Forbidden("X-On-Behalf-Of names no account.")
    return user
