"""The ledger of deliveries against a real Postgres: routing, claims, the schedule, dead senders,
sending again."""
import threading
from datetime import timedelta

import pytest

from models.database import connection, database, now
from models.events import Delivery, DeliveryAttempt, Event
from models.states import AttemptOutcome
from services.errors import NotFound
from services.events import deliveries, ledger, retention, webhook_resends
from services.events.ledger import Filter
from tests.rows.ledger import (
    DELIVERED,
    DROPPED,
    PENDING,
    SENDING,
    WAITS,
    claim,
    deliver,
    dropped,
    fail,
    make_due,
    occur,
    outcomes,
    route,
)

pytestmark = pytest.mark.usefixtures("fresh_rows")


@pytest.fixture(autouse=True)
def held(fresh_rows):
    """An empty ledger and a connection for the test."""
    with connection():
        database.execute_sql("TRUNCATE events CASCADE")
        yield


def test_each_receiver_gets_one_delivery_of_each_event_after_the_first_wait():
    occur(3)
    assert route("a", "b") == 3
    assert route("a", "b") == 0
    assert Delivery.select().count() == 6
    for row in Delivery.select(Delivery, Event).join(Event):
        assert row.next_attempt_at - row.event.occurred_at == timedelta(seconds=1)


def test_without_a_receiver_events_are_kept_and_never_sent():
    occur(2)
    assert route() == 2
    assert route("a") == 0
    assert (Event.select().count(), Delivery.select().count()) == (2, 0)


def test_events_of_a_long_queue_are_routed_batch_by_batch_oldest_first():
    ids = occur(5)
    Event.update(occurred_at=now() - timedelta(hours=1)).where(Event.id == ids[-1]).execute()
    while route("a"):
        pass
    make_due()
    database.execute_sql(
        "UPDATE deliveries SET next_attempt_at = (SELECT occurred_at FROM events WHERE id ="
        " event_id)"
    )
    assert [claimed.event_id for claimed in claim()] == [ids[-1], *ids[:-1]]


def test_only_what_is_due_is_claimed_and_counted_before_it_is_sent():
    occur()
    route("a", "b")
    assert claim() == []
    assert deliveries.list_due(["a", "b", "c"]) == []
    make_due()
    assert deliveries.list_due(["a", "b", "c"]) == ["a", "b"]
    claimed, = claim()
    assert (claimed.number, claimed.event_type) == (1, "deploy.succeeded")
    assert claimed.body == Event.get().body.encode()
    assert outcomes(claimed.delivery_id) == [(1, "under_way")]
    assert deliveries.list_due(["a", "b"]) == ["b"]


def test_many_claimers_get_each_delivery_once():
    occur(120)
    route("a")
    make_due()
    got, lock = [], threading.Lock()

    def work(number):
        with connection():
            while found := claim(sender=f"s{number}", limit=7):
                with lock:
                    got.extend(one.delivery_id for one in found)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 120


def test_three_failures_and_it_is_dropped():
    occur()
    route("a")
    for number, wait in ((1, 5), (2, 20), (3, None)):
        Delivery.update(next_attempt_at=now()).execute()
        claimed, = claim()
        assert claimed.number == number
        fail(claimed)
        row = Delivery.get()
        if wait:
            assert row.state == PENDING and row.next_attempt_at - claimed.due_at == timedelta(
                seconds=wait)
    assert (row.state, row.attempts) == (DROPPED, 3) and row.finished_at is not None
    make_due()
    assert claim() == []
    assert [outcome for _, outcome in outcomes(row.id)] == [AttemptOutcome.FAILED] * 3
    assert {row.reason for row in DeliveryAttempt.select()} == {"HTTP 500"}


def test_success_ends_it():
    occur()
    route("a")
    make_due()
    claimed, = claim()
    deliver(claimed)
    row = Delivery.get()
    assert (row.state, row.attempts, row.lease_until) == (DELIVERED, 1, None)
    make_due()
    assert claim() == []


def test_a_dead_sender_costs_one_attempt_of_unknown_outcome_and_never_a_fourth():
    occur()
    route("a")
    for number in (1, 2, 3):
        make_due()
        claimed, = claim(lease_s=-1)
        assert claimed.number == number
        assert claim() == [], "nobody else may have it before the lease is over"
        assert deliveries.release_expired(WAITS) == 1
    assert Delivery.get().state == DROPPED
    assert [outcome for _, outcome in outcomes(claimed.delivery_id)] == [AttemptOutcome.UNKNOWN] * 3
    assert deliveries.release_expired(WAITS) == 0


def test_the_schedule_goes_on_from_the_attempt_that_was_lost():
    occur()
    route("a")
    make_due()
    claimed, = claim(lease_s=-1)
    deliveries.release_expired(WAITS)
    assert Delivery.get().next_attempt_at == claimed.due_at + timedelta(seconds=5)


def test_a_sender_that_is_back_ends_the_leases_of_its_earlier_lives_only():
    occur(3)
    route("a")
    make_due()
    earlier, = claim(sender="me@host/1", limit=1)
    mine, = claim(sender="me@host/2", limit=1)
    other, = claim(sender="me@host2/1", limit=1)
    assert deliveries.release_earlier("me@host/2", WAITS) == 1
    states = {row.id: row.state for row in Delivery.select()}
    assert states == {
        earlier.delivery_id: PENDING, mine.delivery_id: SENDING, other.delivery_id: SENDING
    }


def test_a_late_success_counts_and_a_late_failure_changes_nothing():
    occur(2)
    route("a")
    make_due()
    first, second = claim(lease_s=-1)
    deliveries.release_expired(WAITS)
    planned = Delivery.get_by_id(second.delivery_id).next_attempt_at
    deliver(first)
    fail(second)
    assert Delivery.get_by_id(first.delivery_id).state == DELIVERED
    row = Delivery.get_by_id(second.delivery_id)
    assert (row.state, row.next_attempt_at) == (PENDING, planned)
    assert outcomes(first.delivery_id) == [(1, "delivered")] and outcomes(
        second.delivery_id) == [(1, "failed")]


def test_the_result_of_an_older_attempt_does_not_end_the_one_under_way():
    occur()
    route("a")
    make_due()
    first, = claim(lease_s=-1)
    deliveries.release_expired(WAITS)
    make_due()
    second, = claim()
    fail(first)
    assert Delivery.get().state == SENDING
    deliver(second)
    assert outcomes(first.delivery_id) == [(1, "failed"), (2, "delivered")]


def test_what_waits_for_a_receiver_that_is_gone_is_dropped():
    occur()
    route("a", "gone")
    assert deliveries.drop_unconfigured(["a"]) == 1
    assert {row.receiver: row.state for row in Delivery.select()} == {"a": PENDING, "gone": DROPPED}


def test_old_events_are_forgotten_with_their_ledger_unless_still_to_be_told():
    done, open_one, fresh = occur(3)
    route("a")
    make_due()
    for claimed in claim():
        if claimed.event_id != open_one:
            deliver(claimed)
    Event.update(occurred_at=now() - timedelta(days=31)).where(
        Event.id.in_([done, open_one])
    ).execute()
    assert retention.forget_old(30) == 1
    assert {row.id for row in Event.select()} == {open_one, fresh}
    assert DeliveryAttempt.select().count() == 2


def test_an_event_is_not_forgotten_before_it_is_told_and_none_with_zero_days():
    told, new = occur(2)
    Event.update(occurred_at=now() - timedelta(days=400)).execute()
    Event.update(routed_at=now()).where(Event.id == told).execute()
    assert retention.forget_old(0) == 0
    assert (retention.forget_old(30), retention.forget_old(30)) == (1, 0)
    assert [row.id for row in Event.select()] == [new]


def test_a_dropped_event_can_be_sent_again_on_a_schedule_of_its_own():
    event_id = dropped("a", "b")
    assert webhook_resends.redeliver(event_id, ["a"], WAITS[0]) == 1
    assert webhook_resends.redeliver(event_id, ["a"], WAITS[0]) == 0, "one is under way already"
    make_due()
    claimed, = claim()
    assert (claimed.number, claimed.event_id, claimed.body) == (1, event_id,
                                                                Event.get().body.encode())
    deliver(claimed)
    history = ledger.get_event(event_id)
    assert [(row.receiver, row.state, row.redelivery) for row, _ in history.deliveries] == [
        ("a", "dropped", False), ("b", "dropped", False), ("a", "delivered", True)]
    with pytest.raises(NotFound):
        webhook_resends.redeliver("evt_none", ["a"], WAITS[0])


def test_a_range_is_sent_again_to_those_who_missed_it():
    begun = now() - timedelta(seconds=1)
    missed = {dropped("a", "b") for _ in range(3)}
    occur()
    route("a", "b")
    make_due()
    for claimed in claim():
        deliver(claimed)
    until = now() + timedelta(seconds=1)
    outside = dropped("a")
    Event.update(occurred_at=until).where(Event.id == outside).execute()
    wanted = Filter(since=begun, until=until, state=DROPPED)
    assert webhook_resends.redeliver_range(wanted, ["a"], WAITS[0], dry_run=True) == 3
    assert webhook_resends.redeliver_range(wanted, ["a"], WAITS[0]) == 3
    assert webhook_resends.redeliver_range(wanted, ["a"], WAITS[0]) == 0
    again = {row.event_id
             for row in Delivery.select().where(Delivery.redelivery == True)}  # noqa: E712 - SQL
    assert again == missed and outside not in again
