"""The query of a list that comes in pages."""
from app.schemas.fields import Body, Most, Numeral

LIMIT_DEFAULT, LIMIT_MAX = 100, 500


class PageQuery(Body):
    """How many entries, from which on; more than 500 are 500 (contract, Limits)."""

    limit = Most("How many to show", LIMIT_MAX, load_default=LIMIT_DEFAULT)
    offset = Numeral("How many to pass over.", load_default=0)
