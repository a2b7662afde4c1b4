"""How often the gateway and `releases` look, against how long counts what they said last."""
import pytest

from app.gateway.apps.known import VALID_S, Known
from app.releases import __main__ as releases
from services.deploys.edges import staging
from services.deploys.edges.routes import Route, Routes

SERVED = {"app": Route("owner", False, "sandbox", "running", None, 1, "127.0.0.1", 31000)}


@pytest.mark.parametrize("by_name", [{}, SERVED], ids=["no app", "an app"])
def test_a_round_may_fail_before_nobody_goes_by_the_routes_any_more(by_name):
    known = Known("here")
    known.routes = Routes(by_name, {})
    assert 2 * known.round_s < VALID_S


def test_a_look_may_fail_before_nobody_waits_for_the_files_of_an_edge():
    assert 2 * releases._ROUND_S < staging._SEEN_S
