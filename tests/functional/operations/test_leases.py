"""What a worker says of a lease that it cannot renew."""
import logging
import threading

from nodeworker.renew_lease import LeaseKeeper
from services.operations.claims import LeaseLost
from tests.stack.waiting import until

LOST = "lost the lease of something"


def test_it_was_lost_by_who_is_still_at_work_and_not_by_who_has_just_ended_it(deps, caplog):
    asked = threading.Event()

    def renew():
        asked.set()
        raise LeaseLost

    with caplog.at_level(logging.WARNING):
        with LeaseKeeper(renew, 6.0, "something"):
            assert asked.wait(30)
        assert LOST not in caplog.text
        with LeaseKeeper(renew, 0.1, "something"):
            until(lambda: LOST in caplog.text)
