"""How addresses are matched where Flask's own ways do not do."""
from flask import Flask
from werkzeug.routing import PathConverter


class RestConverter(PathConverter):
    """All the rest of the address: slashes, also at its beginning, line breaks, and nothing at
    all."""

    part_isolating = False
    regex = "(?s:.*?)"


def install(app: Flask) -> None:
    """Make `<rest:name>` known to the routes of `app`, and take an address as it is: one with two
    slashes is another, and not redirected to a host that the caller has named. Goes before the
    blueprints."""
    app.url_map.merge_slashes = False
    app.url_map.converters["rest"] = RestConverter
