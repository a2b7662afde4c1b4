"""The identity host: `app.identity:create_app()`. Sessions of people, their tokens, and the keys that verify tokens."""
from flask import Flask

from app import auth, errors, request_ids, wiring
from app.api import health
from app.identity import routes
from app.identity.sessions import Sessions
from app.identity.throttle import LoginThrottle
from app.signing_keys import KeyDirectory
from config.settings import Settings, get_settings


def create_app(settings: Settings | None = None) -> Flask:
    """The Flask app of the identity host; makes the first signing key if there is none."""
    settings = settings or get_settings()
    app = Flask("svc-identity", static_folder=None)
    wiring.attach(app, wiring.build(settings, application="svc-identity"))
    keys = KeyDirectory(settings.signing_keys_dir)
    keys.ensure(settings.jwt_algorithms[0])
    routes.attach(app, routes.Parts(settings, keys, Sessions(settings), LoginThrottle()))
    errors.install(app)
    request_ids.install(app)
    auth.install(app)
    app.register_blueprint(routes.routes)
    app.register_blueprint(health.routes)
    return app
