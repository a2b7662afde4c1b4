"""The shell process: `app.shell.factory:create_app()`."""
from flask import Flask

from app import wiring
from app.http import converters, credentials, errors, health, held, rate_limits, request_ids
from app.shell import offered_credential, routes
from config.settings import Settings, get_settings
from services.accounts.tokens import Authority


def create_app(settings: Settings | None = None, authority: Authority | None = None) -> Flask:
    """The Flask app of the shell process, on the environment's settings unless others are given;
    `authority` as for the API."""
    settings = settings or get_settings()
    app = Flask("svc-shell", static_folder=None)
    wiring.attach(app, wiring.build(settings, application="svc-shell", authority=authority))
    converters.install(app)
    errors.install(app)
    request_ids.install(app)
    held.install(app)
    credentials.install(app, secret=offered_credential.secret_of)
    rate_limits.install(app, settings, prefix="/")  # a shell's address is of two forms
    app.register_blueprint(health.routes)
    routes.install(app, settings)
    return app
