"""Composition root of the HTTP processes: settings, queue and guests put together, the database pointed at."""
from flask import Flask, current_app

from app.guests import AgentGuests
from app.signing_keys import KeyDirectory
from config.settings import Settings
from models.base import connect
from services.protocols import Deps
from services.tokens import VerificationKeys
from tasks.publisher import CeleryQueue

_KEY = "svc"


class Wired:
    """What the routes of one process use: `deps` for the use cases, `keys` that verify tokens."""

    def __init__(self, settings: Settings, deps: Deps, keys: VerificationKeys) -> None:
        self.settings = settings
        self.deps = deps
        self.keys = keys


def build(settings: Settings, *, application: str) -> Wired:
    """Wire a process; opens no connection yet."""
    connect(settings.database_url, pool_size=settings.db_pool_size, application=application)
    deps = Deps(settings=settings, queue=CeleryQueue(settings), guests=AgentGuests())
    return Wired(settings, deps, KeyDirectory(settings.signing_keys_dir))


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
