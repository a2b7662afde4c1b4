"""How long requests are held while a database moves: as the setting says, longer for an app that is
slow to start, and never beyond what holds them."""
import re

import pytest

from app.gateway.apps.requests import _HELD_S
from bin.stack.site import ROOT
from config.settings import Settings
from services.deploys.edges.routes import _FENCE_MARGIN_S
from services.deploys.served.fences import LONGEST_S, length_s


@pytest.mark.parametrize(("base_s", "start_s", "wanted_s"), [
    (30, 0, 30), (30, 10, 30), (30, 27, 47), (30, 30, 50), (30, 35, 55), (30, 36, 55), (50, 27, 50),
    (50, 34, 54), (6, 0, 6), (6, 2, 6), (90, 71, 90),
])
def test_a_fence_is_as_long_as_a_start_needs_it(base_s, start_s, wanted_s):
    assert length_s(base_s, start_s) == pytest.approx(wanted_s)


def test_the_shipped_settings_have_room_for_the_slowest_start():
    shipped = Settings()
    assert length_s(shipped.deploy_fence_s, shipped.deploy_ready_s) < LONGEST_S


def test_requests_are_held_for_longer_than_any_fence():
    lua = (ROOT / "config/nginx/lua/apps.lua").read_text()
    held_s = float(re.search(r"^local HELD = (\d+) ", lua, re.MULTILINE)[1])
    assert min(held_s, _HELD_S) > LONGEST_S + _FENCE_MARGIN_S
