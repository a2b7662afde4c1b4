"""Webhooks end to end: beat, broker, sender and receivers are real; what is asserted of time is
relative to the settings."""
import itertools
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from bin.stack.running import private_stack
from bin.stack.site import ROOT
from config.settings import Settings
from models.database import connect, connection, database
from models.events import Delivery, DeliveryAttempt
from models.states import AttemptOutcome, DeliveryState
from sdk.webhooks import signature
from services.events import webhook_resends
from services.events.receivers import webhook_options
from services.events.signature import SIGNATURE_HEADER, TIMESTAMP_HEADER
from tests.stack.processes import Process
from tests.stack.waiting import until
from tests.stack.webhooks import check_signatures, lateness, ledger, occur, unfinished

WAITS = (0.5, 1.5, 3.0)
TIMEOUT_S = 6.0
# Beat ticks once in 0.2 s; the machine may be busy with other tests. Less than the time-out, which
# is what a receiver that hangs would cost the others.
LATE_S = 4.5


@pytest.fixture(scope="module")
def stack(clean_host):
    """Servers and beat; the senders belong to the tests."""
    made = private_stack("test-hooks", {"SVC_WEBHOOK_RECEIVER_URL": "http://set.by.each.test/"},
                         processes=("beat", ))
    try:
        made.start_servers()
        made.prepare()
        made.start("beat")
        connect(made.site.values["SVC_DATABASE_URL"], pool_size=10)
        yield made
    finally:
        database.close_all()
        made.destroy()


@pytest.fixture
def sender(stack, receiver, tmp_path):
    """Starts the sender with receivers at the given paths, which no other test may use."""
    numbers = itertools.count(1)
    running = []

    def start(*paths, **settings):
        values = {
            "SVC_WEBHOOK_RECEIVER_URL": ",".join(receiver.url(path) for path in paths),
            "SVC_WEBHOOK_SECRETS": "v1:one",
            "SVC_WEBHOOK_WAITS": ",".join(map(str, WAITS)),
            "SVC_WEBHOOK_TIMEOUT_S": str(TIMEOUT_S),
            **settings,
        }
        running.append(Process(stack, "webhooks", values, tmp_path / f"sender{next(numbers)}.log"))
        until(lambda: " ready" in running[-1].log.read_text())
        return running[-1]

    yield start
    for process in running:
        process.kill()


def name_of(receiver, path):
    settings = Settings(webhook_receiver_url=(receiver.url(path),), webhook_secrets=("s",))
    return webhook_options(settings).receivers[0].name


def results(receiver, ids, path):
    return ledger(ids, name_of(receiver, path))


KINDS = {
    "/ok?1": (1, None),
    "/flood?1": (1, None),
    "/slow?1": (1, None),
    "/twice?1": (3, None),
    "/fail?1": (3, "HTTP 500"),
    "/redirect?1": (3, "redirect"),
    "/reset?1": (3, "cut"),
    "/close?1": (3, "cut"),
    "/garbage?1": (3, "not HTTP"),
    "/headers?1": (3, "not HTTP"),
    "/hang?1": (3, "no answer"),
    "/drip?1": (3, "no answer"),
}


@pytest.mark.slow
def test_every_receiver_gets_what_it_deserves_and_harms_no_other(receiver, sender):
    sender(*KINDS, SVC_WEBHOOK_SECRETS="v1:one,v2:two")
    ids = [occur() for _ in range(10)]
    until(lambda: unfinished(ids) == 0)
    for path, (attempts, reason) in KINDS.items():
        arrived = receiver.by_event(path)
        assert set(arrived) == set(ids), path
        assert {len(requests) for requests in arrived.values()} == {attempts}, path
        for delivery, tries in results(receiver, ids, path).values():
            assert delivery.state == (DeliveryState.DROPPED
                                      if reason else DeliveryState.DELIVERED), path
            assert [one.number for one in tries] == list(range(1, attempts + 1))
            assert all(one.duration_ms is not None for one in tries)
            if reason:
                assert all(reason in one.reason and one.outcome == AttemptOutcome.FAILED
                           for one in tries), path
            else:
                assert tries[-1].outcome == AttemptOutcome.DELIVERED
        bodies = {(one.event_id, one.body) for one in receiver.arrivals(path)}
        assert len(bodies) == len(ids), "every attempt sends the same bytes"
        for secret in ("one", "two", ["one", "two"]):
            assert check_signatures(receiver.arrivals(path), secret) == attempts * len(ids)
    for path in ("/ok?1", "/fail?1", "/twice?1"):
        late = lateness(receiver.arrivals(path), WAITS)
        assert 0 <= min(late) and max(
            late) < LATE_S, f"{path}: {min(late):.2f} to {max(late):.2f} s"


@pytest.mark.slow
def test_each_attempt_is_signed_at_its_own_time(receiver, sender):
    sender("/fail?2")
    event_id = occur()
    until(lambda: unfinished([event_id]) == 0)
    requests = receiver.arrivals("/fail?2")
    stamps = [int(one.headers["x-svc-webhook-timestamp"]) for one in requests]
    assert all(stamp <= one.at for one, stamp in zip(requests, stamps, strict=True))
    # Stamps are whole seconds.
    assert all(stamp + 1 > before.at for before, stamp in zip(requests, stamps[1:]))
    assert len({one.headers["x-svc-webhook-signature"] for one in requests}) == 3


@pytest.mark.slow
def test_a_restart_loses_nothing_and_leaves_no_attempt_in_doubt(receiver, sender):
    process = sender("/ok?3", "/slow?3")
    ids = []
    for number in range(60):
        ids.append(occur())
        if number == 30:
            stopper = threading.Thread(target=lambda: (process.stop(), process.start()))
            stopper.start()
        time.sleep(0.03)
    stopper.join()
    until(lambda: unfinished(ids) == 0)
    for path in ("/ok?3", "/slow?3"):
        assert {event: len(requests)
                for event, requests in receiver.by_event(path).items()} == dict.fromkeys(ids, 1)
    with connection():
        doubtful = DeliveryAttempt.select().where(
            DeliveryAttempt.outcome == AttemptOutcome.UNKNOWN).count()
    assert doubtful == 0


def checks_v1_only(arrival, secrets):
    """As a receiver that looks at nothing but the v1 entry."""
    header = arrival.headers[SIGNATURE_HEADER.lower()]
    entries = dict(entry.split("=") for entry in header.split(","))
    timestamp = int(arrival.headers[TIMESTAMP_HEADER.lower()])
    return entries["v1"] in [signature(secret, timestamp, arrival.body) for secret in secrets]


@pytest.mark.slow
def test_a_secret_is_rotated_without_a_single_rejected_delivery(receiver, sender):
    """docs/webhooks.md: 1. Receivers accept either secret. 2. `v1:new,v2:old`. 3. `v1:new`."""
    ids, boundaries = [], []
    for secrets in ("v1:old", "v1:new,v2:old", "v1:new"):
        process = sender("/ok?4", SVC_WEBHOOK_SECRETS=secrets)
        batch = [occur() for _ in range(10)]
        ids += batch
        until(lambda: unfinished(batch) == 0)  # noqa: B023 - awaited within the round
        process.stop()
        boundaries.append(len(receiver.arrivals("/ok?4")))
    arrivals = receiver.arrivals("/ok?4")
    assert boundaries == [10, 20, 30]
    assert check_signatures(arrivals[:20], "old") == 20
    assert check_signatures(arrivals[10:], "new") == 20
    assert check_signatures(arrivals, ["old", "new"]) == 30
    assert all(checks_v1_only(one, ["old", "new"]) for one in arrivals)
    assert all(checks_v1_only(one, ["new"]) for one in arrivals[10:])


@pytest.mark.slow
def test_a_receiver_that_hangs_does_not_move_later_attempts(receiver, sender):
    """The second attempt waits for the end of the first, the third comes at its time."""
    waits = (0.2, 0.2, 12.0)
    sender("/hang?10", SVC_WEBHOOK_WAITS=",".join(map(str, waits)), SVC_WEBHOOK_TIMEOUT_S="6")
    event_id = occur()
    until(lambda: len(receiver.arrivals("/hang?10")) == 3)
    late = lateness(receiver.arrivals("/hang?10"), waits)
    assert late[1] > 4 > late[2], f"{event_id}: {late}"


@pytest.mark.slow
def test_a_killed_sender_costs_an_attempt_and_never_makes_a_fourth(receiver, sender):
    process = sender("/hang?5", "/ok?5", SVC_WEBHOOK_TIMEOUT_S="6")
    ids = [occur() for _ in range(20)]
    until(lambda: len(receiver.arrivals("/hang?5")) == 20)
    process.kill()
    process.start()
    until(lambda: len(receiver.arrivals("/hang?5")) == 40)
    process.kill()
    process.start()
    until(lambda: unfinished(ids) == 0)
    for delivery, tries in results(receiver, ids, "/hang?5").values():
        assert (delivery.state, delivery.attempts) == (DeliveryState.DROPPED, 3)
        assert [one.outcome for one in tries] == [AttemptOutcome.UNKNOWN] * 2 + [
            AttemptOutcome.FAILED
        ]
        assert "sender died" in tries[0].reason
    assert Counter(one.event_id for one in receiver.arrivals("/hang?5")) == dict.fromkeys(ids, 3)
    assert set(receiver.by_event("/ok?5")) == set(ids)


@pytest.mark.slow
def test_two_senders_and_two_beats_send_each_event_once(stack, receiver, sender, tmp_path):
    sender("/ok?6")
    sender("/ok?6")
    values = {"SVC_DATA_DIR": str(tmp_path), "SVC_WEBHOOK_RECEIVER_URL": "http://x/"}
    with Process(stack, "beat", values, tmp_path / "beat.log"):
        until(lambda: "maxinterval" in (tmp_path / "beat.log").read_text())
        ids = []
        for _ in range(200):
            ids.append(occur())
            time.sleep(0.01)
        until(lambda: unfinished(ids) == 0)
    assert Counter(one.event_id for one in receiver.arrivals("/ok?6")) == dict.fromkeys(ids, 1)


@pytest.mark.slow
def test_a_dropped_event_is_sent_again_when_the_operator_says_so(receiver, sender):
    process = sender("/twice?7", SVC_WEBHOOK_WAITS="0.2,0.2")
    event_id = occur()
    until(lambda: unfinished([event_id]) == 0)
    with connection():
        assert Delivery.get(Delivery.event == event_id).state == DeliveryState.DROPPED
    assert webhook_resends.redeliver(event_id, [name_of(receiver, "/twice?7")], 0.2) == 1
    until(lambda: unfinished([event_id]) == 0 and len(receiver.arrivals("/twice?7")) == 3)
    requests = receiver.arrivals("/twice?7")
    assert len({one.body for one in requests}) == 1
    assert check_signatures(requests, "one") == 3
    process.stop()


def test_a_receiver_that_was_removed_is_not_told_any_more(receiver, sender):
    process = sender("/hang?8", SVC_WEBHOOK_WAITS="30,30")
    event_id = occur()
    until(lambda: bool(results(receiver, [event_id], "/hang?8")))
    process.stop()
    sender("/ok?8")
    until(lambda: unfinished([event_id]) == 0, 90)
    assert results(receiver, [event_id], "/hang?8")[event_id][0].state == DeliveryState.DROPPED
    assert receiver.arrivals("/hang?8") == []


@pytest.mark.slow
@pytest.mark.parametrize(("path", "code", "text"), [
    ("/ok?9", 0, "delivered after 1 attempts"),
    ("/fail?9", 1, "dropped after 2 attempts: HTTP 500"),
])
def test_an_operator_tries_a_receiver(stack, receiver, sender, path, code, text):
    sender(path, SVC_WEBHOOK_WAITS="0.2,0.2")
    values = {"SVC_WEBHOOK_RECEIVER_URL": receiver.url(path), "SVC_WEBHOOK_SECRETS": "v1:one"}
    command = [sys.executable, "-m", "app.operator", "webhooks", "send-test"]
    answer = subprocess.run(command, cwd=ROOT, env={**stack.env, **values}, text=True,
                            capture_output=True, check=False, timeout=90)
    assert (answer.returncode, text in answer.stdout) == (code, True), answer
    assert {one.headers["x-svc-webhook-type"]
            for one in receiver.arrivals(path)} == {"webhook.test"}
