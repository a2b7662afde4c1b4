"""Who is calling, and which credentials a route takes: a table on the routes, default deny.

1. A route names what it `accepts`; one that names nothing takes nothing. 2. Before the route runs,
and before its body is read, the credential is judged (`services/accounts/principals.py`): missing
or bad is 401. 3. A good one of a kind that the route does not take is 403. 4. A route that takes a
session looks at the cookie only. 5. A route may name what it asks first of the sandbox in its path:
an API key is judged and that read in one statement.
"""
from collections.abc import Callable
from typing import Any, TypeVar

from flask import Flask, Request, current_app, g, request

from app.wiring import Wired, get_wired
from models.row import About, Lookup
from models.users import User
from services.accounts import api_keys, principals, tokens, users
from services.accounts.principals import Credential, Principal
from services.errors import Forbidden, InvalidRequest, Unauthenticated
from services.sandboxes.caller import Caller, kind_made

View = TypeVar("View", bound=Callable[..., Any])

PUBLIC, API_KEY, USER_JWT, SERVICE, ADMIN, SESSION = Credential
# What acts for an account.
ACCOUNTS = (API_KEY, USER_JWT, SERVICE)
_SESSIONS, _SECRET = "svc-sessions", "svc-secret"
SESSION_COOKIE = "svc_session"


def accepts(*credentials: Credential, about: Lookup | None = None) -> Callable[[View], View]:
    """Declare what a view takes, and what it asks first of the sandbox in its path."""

    def mark(view: View) -> View:
        setattr(view, "accepted", frozenset(credentials))
        setattr(view, "about", about)
        return view

    return mark


def accepted_by(view: Any) -> frozenset[Credential]:
    """What a view takes; nothing unless it says so."""
    declared: frozenset[Credential] = getattr(view, "accepted", frozenset())
    return declared


def bearer_of(request: Request) -> str:
    """The credential in the header of a request; raises Unauthenticated."""
    return principals.secret_of(request.headers.get("Authorization", ""))


def install(app: Flask, sessions: Callable[[Request], User] | None = None,
            secret: Callable[[Request], str] = bearer_of) -> None:
    """Check the credential of every request of `app` before its route runs.

    `sessions` gives the user of a request's session or raises Unauthenticated; a host without it
    has none. `secret` finds the credential in a request or raises Unauthenticated.
    """
    app.extensions |= {_SESSIONS: sessions, _SECRET: secret}
    app.before_request(_authenticate)


def _authenticate() -> None:
    if request.endpoint is None:
        return
    view = current_app.view_functions[request.endpoint]
    accepted = accepted_by(view)
    if PUBLIC in accepted:
        return
    secret_of = current_app.extensions[_SECRET]
    principal = _of_session() if SESSION in accepted else _identify(secret_of(request),
                                                                    _about(view))
    principals.require(principal, accepted)
    g.principal = principal


def _of_session() -> Principal:
    sessions = current_app.extensions[_SESSIONS]
    if sessions is None:
        raise Unauthenticated("There are no sessions on this host.")
    user = sessions(request)
    return Principal(SESSION, user.id, user)


def _about(view: Any) -> About | None:
    """What to read with the credential. Nothing for a call whose body is still being sent: the row
    may change until it has come."""
    lookup: Lookup | None = getattr(view, "about", None)
    if lookup is None or getattr(request.environ["wsgi.input"], "is_slow", False):
        return None
    return About(lookup, (request.view_args or {})["sandbox_id"])


def _identify(secret: str, about: About | None) -> Principal:
    wired = get_wired()
    return principals.identify(wired.settings, wired.authority, secret,
                               request.headers.get("X-On-Behalf-Of"), about)


def check_again(wired: Wired, principal: Principal, secret: str) -> None:
    """Raise Unauthenticated unless a credential that was good once still is; works outside of a
    request.

    A user's token may have expired since, because it lasts minutes only.
    """
    if principal.credential is API_KEY:
        api_keys.authenticate(secret)
        return
    if principal.credential is SERVICE:
        tokens.verify(wired.settings, wired.authority, secret)
    if principal.owner is None or users.find(principal.owner.id) is None:
        raise Unauthenticated("The account does not exist or is disabled.")


def current_owner() -> User:
    """The user whose resources this request is about; raises Forbidden for a service that names
    nobody."""
    principal: Principal = g.principal
    if principal.owner is None:
        raise Forbidden("A service has to say for whom it acts: X-On-Behalf-Of: <user id>.")
    return principal.owner


def current_namespace() -> User | None:
    """Whose names this request is about: a user's, or None for a service that acts for nobody, the
    system's."""
    principal: Principal = g.principal
    return principal.owner


def current_caller() -> Caller:
    """The owner whom this request is for, what it makes, and the node that it is pinned to.

    Raises Forbidden as `current_owner`, InvalidRequest for an impossible `X-Svc-Node`.
    """
    owner, principal = current_owner(), g.principal
    kind = kind_made(with_api_key=principal.credential is API_KEY)
    node = request.headers.get("X-Svc-Node", "").strip()
    if len(node) > 256:
        raise InvalidRequest("X-Svc-Node is too long")
    return Caller(owner, kind, node or None, principal.read_ahead)
