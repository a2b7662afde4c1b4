"""Composition root of the HTTP processes: settings, queue and guests put together, the database
pointed at."""
from flask import Flask, current_app

from app.deps import make_deps
from app.http.identity_mirror import IdentityMirror
from config.settings import Settings
from models.database import connect
from services.accounts.tokens import Authority
from services.llm.sandbox_url import check_key
from services.metering.credit import check_plans
from services.metering.prices import check_rates
from services.protocols import Deps

_KEY = "svc"


class Wired:
    """What the routes of one process use: `deps` for the use cases, `authority` to judge tokens
    by."""

    def __init__(self, settings: Settings, deps: Deps, authority: Authority) -> None:
        self.settings = settings
        self.deps = deps
        self.authority = authority


def build(settings: Settings, *, application: str, authority: Authority | None = None) -> Wired:
    """Wire a process; opens no database connection yet. Without an `authority` it mirrors the
    identity host."""
    check_rates(settings)
    check_plans(settings)
    check_key(settings)
    connect(settings.database_url, pool_size=settings.db_pool_size, application=application)
    deps = make_deps(settings)
    if authority is None:
        mirror = IdentityMirror(settings)
        mirror.start()
        authority = mirror
    return Wired(settings, deps, authority)


def attach(app: Flask, wired: Wired) -> None:
    """Make `wired` what `get_wired` and `get_deps` give inside this app."""
    app.extensions[_KEY] = wired


def get_attached(app: Flask) -> Wired:
    """What was attached to `app`."""
    wired: Wired = app.extensions[_KEY]
    return wired


def get_wired() -> Wired:
    """The wiring of the app that is handling the request."""
    return get_attached(current_app)


def get_deps() -> Deps:
    """The dependencies of the use cases, in the app that is handling the request."""
    return get_wired().deps
