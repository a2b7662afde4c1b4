"""How long the pauses of a waiting operation are."""
import pytest

from nodeworker.handlers.poll_interval import poll_interval_s


@pytest.mark.parametrize(("waited_s", "pause_s"), [(0, 0.2), (0.5, 0.2), (2, 0.5), (8, 2), (60, 2)])
def test_pauses_are_short_first(waited_s, pause_s):
    assert poll_interval_s(waited_s) == pause_s
