"""How parts of an address are matched where Flask's own converters do not do."""
from flask import Flask
from werkzeug.routing import PathConverter


class RestConverter(PathConverter):
    """All the rest of the address: slashes, also at its beginning, line breaks, and nothing at
    all."""

    part_isolating = False
    regex = "(?s:.*?)"


def install(app: Flask) -> None:
    """Make `<rest:name>` known to the routes of `app`; goes before its blueprints."""
    app.url_map.converters["rest"] = RestConverter
