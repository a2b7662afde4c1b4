"""The tick that tidies the ledger of a sender without receivers, for which nothing is swept."""
import pytest

from models.database import connection, database
from models.events import Delivery
from models.states import AttemptOutcome
from tasks import webhooks
from tests.rows.ledger import DROPPED, SENDING, claim, make_due, occur, outcomes, route

pytestmark = pytest.mark.usefixtures("fresh_rows")


@pytest.mark.parametrize(("lease_s", "state", "outcome"), [
    (-1, DROPPED, AttemptOutcome.UNKNOWN), (30, SENDING, AttemptOutcome.UNDER_WAY)])
def test_what_was_being_sent_to_the_last_receiver_is_dropped_after_its_lease(
        monkeypatch, lease_s, state, outcome):
    monkeypatch.setattr(webhooks, "get_deps", lambda: None)
    monkeypatch.setattr(webhooks, "_pumps", {})
    with connection():
        database.execute_sql("TRUNCATE events CASCADE")
        occur()
        route("gone")
        make_due()
        claim("gone", lease_s=lease_s)
        webhooks.tidy()
        row = Delivery.get()
        assert (row.state, outcomes(row.id)) == (state, [(1, outcome)])
