"""The public API process: `app.api:create_app()`."""
from flask import Flask

from app import auth, errors, lanes, limits, request_ids, wiring
from app.api import api_keys, execs, files, health, lifecycle, sandboxes, service_surface, snapshots, templates
from config.settings import Settings, get_settings
from services.tokens import Authority

RESOURCES = (sandboxes, lifecycle, snapshots, execs, files, api_keys, templates, service_surface, health)


def create_app(settings: Settings | None = None, authority: Authority | None = None) -> Flask:
    """The Flask app of the API, on the environment's settings unless others are given.

    Tokens are judged by what the identity host publishes, unless another `authority` is given.
    """
    settings = settings or get_settings()
    app = Flask("svc-api", static_folder=None)
    wiring.attach(app, wiring.build(settings, application="svc-api", authority=authority))
    errors.install(app)
    request_ids.install(app)
    auth.install(app)
    limits.install(app, settings)
    lanes.install(app, settings)
    for resource in RESOURCES:
        app.register_blueprint(resource.routes)
    return app
