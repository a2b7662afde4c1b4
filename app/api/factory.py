"""The public API process: `app.api.factory:create_app()`."""
from flask import Flask

from app import wiring
from app.api import (
    api_keys,
    deploys,
    disks,
    execs,
    files,
    lifecycle,
    llm,
    previews,
    sandboxes,
    shells,
    snapshots,
    templates,
    uploads,
)
from app.http import (
    admission,
    converters,
    credentials,
    cross_origin,
    errors,
    health,
    held,
    rate_limits,
    request_ids,
)
from app.http.bodies import buffers
from app.http.openapi import serving as openapi
from config.settings import Settings, get_settings
from services.accounts.tokens import Authority

DESCRIPTION = """\
Runs isolated microVM sandboxes. Each has its own file system, network and lifecycle, belongs to
one account, and sleeps when nobody uses it.

Bodies are JSON in UTF-8 with `Content-Type: application/json`; a body without required fields may
be left out. A field that does not exist is 400 and named, and `null` is the same as leaving a field
out. A query parameter that does not exist is 400 and named where a credential is needed, except by
shell, models and messages. Texts hold no NUL, numbers fit into 53 bits. Times are RFC 3339 in UTC.
Every error is `{"error": "..."}`; one that is our mistake is 500. Every answer of a route but
models and messages has an `X-Request-Id`."""
RESOURCES = (sandboxes, lifecycle, previews, snapshots, execs, files, uploads, disks, api_keys,
             templates, shells, deploys, llm, health)


def create_app(settings: Settings | None = None, authority: Authority | None = None) -> Flask:
    """The Flask app of the API, on the environment's settings unless others are given.

    Tokens are judged by what the identity host publishes, unless another `authority` is given.
    """
    settings = settings or get_settings()
    app = Flask("svc-api", static_folder=None)
    wiring.attach(app, wiring.build(settings, application="svc-api", authority=authority))
    converters.install(app)
    errors.install(app)
    request_ids.install(app)
    held.install(app)
    cross_origin.install(app, settings)
    credentials.install(app)
    rate_limits.install(app, settings)
    admission.install(app, settings)
    buffers.install(app, settings)
    for resource in RESOURCES:
        app.register_blueprint(resource.routes)
    openapi.install(app, title="Sandbox service", description=DESCRIPTION, server=settings.api_url)
    return app
