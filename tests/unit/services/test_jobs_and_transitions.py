"""Job names, their payloads, the beat and the transition table."""
import time
from datetime import timedelta

import pytest
from celery import Celery

from config.settings import Settings
from models.states import OperationKind, SandboxStatus
from services.operations.announcements import job_name
from services.operations.transitions import TRANSITIONS, describe, still_to_come
from tasks import contracts
from tasks import scheduler as beat
from tasks.schedule import beat_schedule


def test_every_operation_has_a_job_and_a_transition():
    assert set(TRANSITIONS) == set(OperationKind)
    assert {job_name(kind) for kind in OperationKind} <= set(contracts.JOBS)


def test_every_periodic_job_is_known_and_expires_before_the_next():
    for job, entry in beat_schedule(Settings(webhook_receiver_url=("http://receiver",))).items():
        assert job in contracts.JOBS
        webhooks = job.startswith("control.webhooks.")
        assert entry["options"]["queue"] == (contracts.WEBHOOKS_QUEUE
                                             if webhooks else contracts.CONTROL_QUEUE)
        assert entry["options"]["expires"] <= max(entry["schedule"],
                                                  contracts.TICK_LIFE_S if webhooks else 0)


def test_without_a_receiver_nobody_looks_for_deliveries():
    assert contracts.WEBHOOKS_SWEEP not in beat_schedule(Settings())


def test_beat_sleeps_until_a_tick_is_due(tmp_path, monkeypatch):
    app = Celery(broker="memory://")
    app.conf.beat_schedule = {"often": {"task": "often", "schedule": 0.1}}
    sent = []
    monkeypatch.setattr(beat, "get_deps", lambda: None)
    monkeypatch.setattr(beat, "is_due", lambda job: sent.append(1))
    scheduler = beat.Scheduler(app, schedule_filename=str(tmp_path / "schedule"))
    looks, began = 0, time.monotonic()
    while len(sent) < 5 and time.monotonic() < began + 20:
        looks += 1
        time.sleep(max(scheduler.tick() or 0, 0))
    took_s = time.monotonic() - began
    scheduler.close()
    assert 5 <= len(sent) <= took_s / 0.1 + 2
    assert looks <= 10 * len(sent), "it asked again and again before one was due"


def test_beat_sends_the_ticks_that_are_due_and_no_others(tmp_path, monkeypatch):
    app = Celery(broker="memory://")
    app.conf.beat_schedule = {name: {"task": name, "schedule": 0.01, "options": {"queue": name}}
                              for name in ("something", "nothing")}
    asked = set()
    monkeypatch.setattr(beat, "get_deps", lambda: None)
    monkeypatch.setattr(beat, "is_due", lambda job: asked.add(job) or job == "something")
    scheduler = beat.Scheduler(app, schedule_filename=str(tmp_path / "schedule"))
    deadline = time.monotonic() + 10
    while asked != {"something", "nothing"} and time.monotonic() < deadline:
        time.sleep(max(scheduler.tick() or 0, 0))
    scheduler.close()
    with app.connection_for_read() as link:
        waiting = {name: link.SimpleQueue(name).qsize() for name in ("something", "nothing")}
    assert asked == {"something", "nothing"}
    assert waiting["something"] and not waiting["nothing"]


def test_beat_goes_on_when_the_clock_is_set_back(tmp_path, monkeypatch):
    app = Celery(broker="memory://")
    app.conf.beat_schedule = {"often": {"task": "often", "schedule": 0.1}}
    sent, ahead, true = [], timedelta(hours=1), app.now
    monkeypatch.setattr(beat, "get_deps", lambda: None)
    monkeypatch.setattr(beat, "is_due", lambda job: sent.append(1))

    def start():
        return beat.Scheduler(app, schedule_filename=str(tmp_path / "schedule"))

    def ticks(scheduler):
        deadline, before = time.monotonic() + 5, len(sent)
        while len(sent) < before + 3:
            assert time.monotonic() < deadline, "nothing is sent any more"
            time.sleep(min(max(scheduler.tick(), 0), 0.1))

    monkeypatch.setattr(app, "now", lambda: true() + ahead)
    scheduler = start()
    ticks(scheduler)
    scheduler.close()
    monkeypatch.setattr(app, "now", true)
    ticks(scheduler := start())
    monkeypatch.setattr(app, "now", lambda: true() - ahead)
    ticks(scheduler)
    scheduler.close()


def test_a_payload_is_parsed_into_its_record():
    payload = contracts.parse("node.sandbox.boot", {"sandbox_id": "x", "op_seq": 3})
    assert payload == contracts.OperationPayload("x", 3)


@pytest.mark.parametrize(
    ("job", "payload"),
    [
        ("node.sandbox.dance", {}),
        ("node.sandbox.boot", {"sandbox_id": "x"}),
        ("node.sandbox.boot", {"sandbox_id": "x", "op_seq": "3"}),
        ("node.sandbox.boot", {"sandbox_id": "x", "op_seq": True}),
        ("node.sandbox.boot", {"sandbox_id": "x", "op_seq": 3, "token": "t"}),
        (contracts.IDLE_SWEEP, {"x": 1}),
    ],
)
def test_a_malformed_payload_is_refused(job, payload):
    with pytest.raises(ValueError):
        contracts.parse(job, payload)


def test_nothing_leaves_stopped():
    assert all(
        SandboxStatus.STOPPED not in transition.starts for transition in TRANSITIONS.values())


@pytest.mark.parametrize(
    "status", [SandboxStatus.PROVISIONING, SandboxStatus.RUNNING, SandboxStatus.HIBERNATED])
def test_everything_alive_can_be_stopped(status):
    assert status in TRANSITIONS[OperationKind.STOP].starts


def test_a_state_in_words():
    assert describe("running", None) == "running"
    assert describe("running", "hibernate") == "running and hibernating"


PROVISIONING, RUNNING, HIBERNATED, STOPPED = SandboxStatus


@pytest.mark.parametrize(("status", "task", "wanted", "still"), [
    (PROVISIONING, "boot", RUNNING, True), (PROVISIONING, "boot", HIBERNATED, True),
    (PROVISIONING, "boot", PROVISIONING, False), (PROVISIONING, "stop", PROVISIONING, True),
    (RUNNING, None, RUNNING, False), (RUNNING, None, HIBERNATED, True),
    (RUNNING, None, PROVISIONING, False), (RUNNING, "hibernate", RUNNING, True),
    (RUNNING, "stop", RUNNING, True), (HIBERNATED, None, RUNNING, True),
    (HIBERNATED, "wake", HIBERNATED, True), (HIBERNATED, "snapshot", HIBERNATED, False),
    *((RUNNING, task, RUNNING, False)
      for task in ("wake", "snapshot", "archive", "grow", "forward")),
    (STOPPED, None, STOPPED, False), (STOPPED, None, RUNNING, False),
    (STOPPED, None, HIBERNATED, False),
])
def test_what_is_still_to_come(status, task, wanted, still):
    assert still_to_come(status, task and OperationKind(task), wanted) is still
