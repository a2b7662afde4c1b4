"""How often the gateway tries a guest that it cannot reach, and asks the database for it."""
import asyncio

import pytest

from app.gateway import reach_port
from app.gateway.pages import NOT_READY
from app.gateway.reach_port import Reacher, Refused
from services.previews.lookup import Target
from services.previews.wake import Reach

# Connecting to it fails at once, and not by a refusal.
NOWHERE = Target("sbx_1", "usr_1", "running", None, 1, "255.255.255.255", 3000, 3000)


class Rows:
    """Says that the sandbox is up, as the rows do; and how often it was asked."""

    asked = 0

    def note_use(self, target):
        """It is used."""

    async def bring_up(self, sandbox_id, guest_ports):
        """It is up, nothing is to be done."""
        self.asked += 1
        return dict.fromkeys(guest_ports, Reach.UP)


def test_a_guest_that_fails_at_once_is_not_tried_as_fast_as_it_fails(monkeypatch):
    monkeypatch.setattr(reach_port, "_AGAIN_S", 0.6)
    rows = Rows()

    async def connect():
        async def look_again():
            return NOWHERE

        with pytest.raises(Refused) as refused:
            await Reacher(rows, 3.0).connect(NOWHERE, look_again)
        assert refused.value.page is NOT_READY
    asyncio.run(connect())
    assert 2 <= rows.asked <= 6
