"""The identity host: `app.identity.factory:create_app()`. Sessions of people, their tokens, and the
keys that verify tokens."""
from flask import Flask

from app import wiring
from app.http import converters, credentials, cross_origin, errors, health, held, request_ids
from app.http.bodies import buffers
from app.http.openapi import serving as openapi
from app.identity import client_address, routes
from app.identity.local_authority import LocalAuthority
from app.identity.origin_check import OriginCheck
from app.identity.sessions import Sessions
from app.identity.sign_in_places import SignInPlaces
from app.identity.signing_keys import KeyDirectory
from config.settings import Settings, get_settings

DESCRIPTION = """\
Who somebody is: signs people in, gives out the tokens that the API takes, and publishes the keys
that verify them. A request that changes something and comes from a page of another origin is
403."""


def create_app(settings: Settings | None = None) -> Flask:
    """The Flask app of the identity host; makes the first signing key if there is none."""
    settings = settings or get_settings()
    app = Flask("svc-identity", static_folder=None)
    authority = LocalAuthority(settings)
    wiring.attach(app, wiring.build(settings, application="svc-identity", authority=authority))
    keys, sessions = KeyDirectory(settings.signing_keys_dir), Sessions(settings)
    keys.ensure(settings.jwt_algorithms[0])
    routes.attach(
        app, routes.Parts(settings, keys, sessions, OriginCheck(settings), SignInPlaces()))
    converters.install(app)
    errors.install(app)
    request_ids.install(app)
    held.install(app)
    cross_origin.install(app, settings, cookies=True)
    credentials.install(app, sessions.get_user)
    buffers.install(app, settings)
    app.register_blueprint(routes.routes)
    app.register_blueprint(health.routes)
    openapi.install(app, title="Sandbox service: identity host", description=DESCRIPTION,
                    server=settings.auth_url)
    client_address.install(app, settings)
    return app
