"""1,000 events, three answers in ten bad, and kill -9 of the sender, Redis and Postgres all the
while: every event is tried until it is delivered or has had its three attempts, every signature is
right, and what came twice is counted."""
import random
import threading
import time

import pytest

from bin.stack.running import private_stack
from models.database import connect, connection, database
from models.events import DeliveryAttempt
from models.states import AttemptOutcome, DeliveryState
from services.events.receivers import webhook_options
from tests.stack.waiting import until
from tests.stack.webhooks import check_signatures, lateness, ledger, occur, unfinished

EVENTS = 1000
PER_SECOND = 50
# One answers after a second, so that every kill of the sender catches attempts under way.
PATHS = ("/ok", "/coin", "/fail", "/slow")
WAITS = (1.0, 5.0, 20.0)
SECRET = "storm"
VICTIMS = ("webhooks", "webhooks", "redis", "postgres", "beat")


@pytest.fixture(scope="module")
def stack(clean_host, receiver):
    """Servers, beat and the sender, all under the supervisor, on the schedule of the contract."""
    made = private_stack("test-storm", {
        "SVC_WEBHOOK_RECEIVER_URL": ",".join(map(receiver.url, PATHS)),
        "SVC_WEBHOOK_SECRETS": SECRET,
    }, processes=("beat", "webhooks"))
    try:
        made.start_servers()
        made.prepare()
        made.start("beat", "webhooks")
        connect(made.site.values["SVC_DATABASE_URL"], pool_size=10)
        yield made
    finally:
        database.close_all()
        made.destroy()


class Killer(threading.Thread):
    """Kills one process every second or two until told to stop; the supervisor brings it back."""

    def __init__(self, stack):
        super().__init__(name="killer", daemon=True)
        self.stack, self.stopped, self.kills = stack, threading.Event(), []

    def run(self):
        dice, deck = random.Random(20261121), []
        while not self.stopped.wait(dice.uniform(1.0, 2.5)):
            deck = deck or dice.sample(VICTIMS, len(VICTIMS))
            victim = deck.pop()
            if self.stack.kill(victim):
                self.kills.append(victim)


def record_all(stack):
    """Events at an even pace, while things die around us."""
    ids, begun = [], time.monotonic()
    for number in range(EVENTS):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        ids.append(occur(patience_s=30))
    return ids


def test_no_event_is_lost_before_its_third_attempt(stack, receiver, capsys):
    until(lambda: " ready" in stack.logs("webhooks", 200))
    killer = Killer(stack)
    killer.start()
    ids = record_all(stack)
    killer.stopped.set()
    killer.join()
    assert {"webhooks", "redis", "postgres"} <= set(killer.kills), "nothing is proved without kills"
    occur(patience_s=30)
    until(lambda: unfinished(ids) == 0, 120)

    doubles = {}
    for one in webhook_options(stack.settings).receivers:
        arrived = receiver.by_event(one.target)
        told = ledger(ids, one.name)
        assert set(told) == set(ids)
        for event_id, (delivery, tries) in told.items():
            requests = arrived[event_id]
            assert [entry.number for entry in tries] == list(range(1, delivery.attempts + 1))
            assert len(
                requests
            ) <= delivery.attempts <= 3, "an attempt sends once, and there are three at most"
            if delivery.state == DeliveryState.DELIVERED:
                assert any(not request.failed for request in requests)
            else:
                assert (delivery.state, delivery.attempts) == (DeliveryState.DROPPED, 3)
        assert check_signatures(receiver.arrivals(one.target), SECRET) >= len(ids) * 0.9
        doubles[one.target] = sum(
            sum(not one.failed for one in requests) > 1 for requests in arrived.values())
    with connection():
        doubtful = DeliveryAttempt.select().where(
            DeliveryAttempt.outcome == AttemptOutcome.UNKNOWN).count()
    late = sorted(lateness(receiver.arrivals("/fail"), WAITS))
    with capsys.disabled():
        print(
            f"\n{EVENTS} events, {len(killer.kills)} kills, {len(receiver.arrivals('/fail'))} of"
            f" {3 * EVENTS} failing requests made, {doubtful} attempts in doubt, delivered twice"
            f" {doubles}, late p50 {late[len(late) // 2]:.2f} s p95"
            f" {late[len(late) * 95 // 100]:.2f} s max {late[-1]:.2f} s"
        )
