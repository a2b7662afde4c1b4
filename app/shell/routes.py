"""The routes of the shell process: a shell is opened before the 101, so that what goes wrong is an
answer with a status and not a broken WebSocket.

1. The credential is looked at (`app.http.credentials`), in any of its four forms. 2. The request
has to be a WebSocket of ours. 3. A place is taken. 4. The sandbox is found, woken and held awake,
and its shell opened. 5. flask-sock answers 101 and calls `carry`. What 3 and 4 took is given back
with the end of the request, whichever it is.
"""
import logging
from functools import partial

from flask import Blueprint, Flask, current_app, g, request
from flask_sock import Sock

from app.http.credentials import ACCOUNTS, accepts, check_again, current_caller
from app.http.held import held
from app.http.plain_shell import refuse_plain
from app.http.route import route
from app.shell import handshake, offered_credential, websocket
from app.shell.limits import ShellLimits
from app.shell.session import Session
from app.shell.watch import Watch
from app.shell.websocket import ShellSocket
from app.wiring import get_deps, get_wired
from config.settings import Settings
from services.accounts.principals import Principal
from services.guest_calls import shells

log = logging.getLogger(__name__)

RULES = ("/<sandbox_id>", "/v1/sandboxes/<sandbox_id>/shell")
_KEY = "svc-shells"


class OpenShells:
    """The shells of this process: room for them, and who looks after them."""

    def __init__(self, settings: Settings) -> None:
        self.limits = ShellLimits(settings)
        self.watch = Watch(settings.identity_poll_s)


def install(app: Flask, settings: Settings) -> None:
    """Add the routes to `app`; goes after `credentials.install`."""
    open_shells = app.extensions[_KEY] = OpenShells(settings)
    open_shells.watch.start()
    websocket.install()
    app.before_request(_enter)
    plain, sock = Blueprint("shell", __name__), Sock(app)
    route(plain, *(f"GET {rule}" for rule in RULES), accepts=ACCOUNTS, status=426)(refuse_plain)
    for rule in RULES:
        sock.route(rule, endpoint=f"carry {rule}")(_carry)
    app.register_blueprint(plain)


def close_all(app: Flask) -> None:
    """The process ends: close every shell of `app`."""
    open_shells: OpenShells = app.extensions[_KEY]
    open_shells.watch.close_all()


def _enter() -> None:
    if request.url_rule is None or not request.url_rule.websocket:
        return
    handshake.check(request)
    caller, principal = current_caller(), g.principal
    open_shells: OpenShells = current_app.extensions[_KEY]
    open_shells.limits.take(caller.owner.id, held())
    assert request.view_args is not None
    opened = held().enter_context(
        shells.opened(get_deps(), caller, request.view_args["sandbox_id"]))
    g.session = Session(opened, _again(principal))
    held().enter_context(open_shells.watch.watched(g.session))


def _again(principal: Principal) -> partial[None]:
    return partial(check_again, get_wired(), principal, offered_credential.secret_of(request))


@accepts(*ACCOUNTS)
def _carry(link: ShellSocket, sandbox_id: str) -> None:
    log.info("a shell was opened", extra={"sandbox": sandbox_id, "request": g.request_id})
    g.session.run(link)
    log.info("a shell has ended", extra={"sandbox": sandbox_id, "request": g.request_id})
