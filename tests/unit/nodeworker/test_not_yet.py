"""How long one run of a waiting operation may talk to a guest, and which wait its time counts
for."""
import dataclasses

import pytest

from models.states import Lane, OperationKind
from nodeworker.not_yet import talk_s
from services.operations.claims import Claim

CLAIM = Claim(1, "box", 1, OperationKind.WAKE, 1, 1, None, "alice", "n1", Lane.OPS,
              waits_for="its service")


@pytest.mark.parametrize(("waited_s", "limit_s"), [(0, 2), (10, 3), (3600, 5)])
def test_a_run_talks_for_seconds_only(waited_s, limit_s):
    assert talk_s(dataclasses.replace(CLAIM, waited_s=waited_s)) == limit_s


def test_only_the_time_of_the_same_wait_counts():
    claimed = dataclasses.replace(CLAIM, waited_s=7)
    assert claimed.waited_for_s("its service") == 7 and claimed.waited_for_s("its disk") == 0
