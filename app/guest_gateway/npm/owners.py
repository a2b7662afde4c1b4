"""Whose share a guest's fetches take: its owner's, so that more sandboxes are no larger share."""
from app.guest_gateway.rows import Rows
from config.settings import Settings
from models.database import DatabaseUnavailable
from services.errors import Forbidden, Unavailable
from services.guests.address_holder import OWNER, OWNER_JOIN, OWNER_VALUES, find_holder


class Owners:
    """Finds owners; asks the database off the event loop."""

    def __init__(self, settings: Settings, rows: Rows) -> None:
        self._settings, self._rows = settings, rows

    async def find(self, source: str) -> str:
        """The owner of the sandbox at a source address. Raises Forbidden where two have it,
        Unavailable as `find_holder`, and while the database is away."""
        try:
            holder = await self._rows.ask(
                find_holder, self._settings, source, OWNER, OWNER_JOIN, *OWNER_VALUES)
        except DatabaseUnavailable as error:
            raise Unavailable("Whose sandbox this is cannot be told now.",
                              retry_after_s=2) from error
        if holder is None:
            raise Forbidden("This address is not of one sandbox.")
        return str(holder[0])
