"""The query of a list that comes in pages."""
from typing import Any

from marshmallow import post_load

from app.schemas.fields import Body, Numeral

LIMIT_DEFAULT, LIMIT_MAX = 100, 500


class PageQuery(Body):
    """How many entries, from which on; more than 500 are 500 (contract, Limits)."""

    limit = Numeral(f"How many to show; more than {LIMIT_MAX} counts as {LIMIT_MAX}.", low=1,
                    load_default=LIMIT_DEFAULT)
    offset = Numeral("How many to pass over.", load_default=0)

    @post_load
    def _cap(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return data | {"limit": min(data["limit"], LIMIT_MAX)}
