"""A node whose clock is not the database's: it is one that reports as long as it does, and no
longer, and its ticks are not too old for it."""
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import celery.worker.request
import pytest
from celery import Celery

from models.database import connection, now
from models.nodes import Node
from models.operations import Operation
from models.sandboxes import Sandbox
from nodeworker import startup
from nodeworker.clock_watch import ClockWatch
from services.errors import Unavailable
from services.hosts import node_load, nodes, placement
from services.hosts.nodes import heartbeat
from services.operations import claims
from services.operator import listings
from services.protocols import Deps
from tasks import contracts, control
from tests.fakes.outside import ListQueue
from tests.stack.edge import NODE

SKEWS = pytest.mark.parametrize("ahead_s", [-20, 20, 3600])


@pytest.fixture
def set_clocks(monkeypatch):
    """Sets the clock of the node, by which its heartbeats and its claims are made."""
    def ahead(seconds):
        for module in (nodes, claims):
            monkeypatch.setattr(module, "now", lambda: now() + timedelta(seconds=seconds))
    return ahead


def create(nodeless, owner):
    return nodeless.api.post("/v1/sandboxes", json={"size": "small"}, headers=nodeless.key(owner))


@SKEWS
def test_it_is_given_sandboxes_while_it_reports_and_no_longer(nodeless, set_clocks, ahead_s):
    set_clocks(ahead_s)
    heartbeat(NODE)
    settings = replace(nodeless.settings, node_dead_after_s=15)
    with connection():
        assert placement.claim_node(settings, 1, 1024).id == NODE.id
        assert 0 <= listings.list_nodes(settings)[0].silent_s < 5
        Node.update(heartbeat_at=Node.heartbeat_at - timedelta(seconds=16)).execute()
        assert nodes.list_alive(settings) == []
        with pytest.raises(Unavailable):
            placement.claim_node(settings, 1, 1024)


@SKEWS
def test_a_heartbeat_tells_by_how_much(nodeless, set_clocks, ahead_s):
    set_clocks(ahead_s)
    assert abs(heartbeat(NODE) - ahead_s) < 5
    assert heartbeat(NODE, started=True) == pytest.approx(ahead_s, abs=5)


def test_the_same_clock_is_none_that_is_apart(nodeless):
    assert heartbeat(NODE) == 0


@SKEWS
def test_a_boot_takes_its_disk_until_the_node_has_told_of_it(nodeless, owner, set_clocks, ahead_s):
    set_clocks(ahead_s)
    facts = replace(NODE, disk_free_mb=100_000, disk_floor_mb=0)

    def free_mb():
        node = Node.get_by_id(NODE.id)
        return node_load.read_disk_room(node, node_load.read_load(node.id)).free_mb

    heartbeat(facts)
    with connection():
        before_mb = free_mb()
        sandbox_id = create(nodeless, owner).json["id"]
        mem_mb = Sandbox.get_by_id(sandbox_id).mem_mb
        assert claims.claim(sandbox_id, 1, "n1/ops", 60) is not None
        assert free_mb() == before_mb - mem_mb, "the node has not told of it"
    heartbeat(facts)
    with connection():
        assert free_mb() == before_mb
        Operation.delete().where(Operation.sandbox_id == sandbox_id).execute()


@pytest.mark.parametrize("ahead_s", [6, 59])
def test_its_clock_may_be_a_minute_ahead_of_who_asks_it_for_usage(nodeless, monkeypatch, ahead_s):
    heartbeat(NODE)
    lives = {}
    queue = SimpleNamespace(publish=lambda queue, job, payload, *, expires_s: lives.update(
        {job: expires_s}))
    monkeypatch.setattr(control, "get_deps", lambda: Deps(nodeless.settings, queue, None))
    monkeypatch.setattr(control, "get_queue", lambda: queue)
    control.sample_all()

    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(seconds=ahead_s)

    monkeypatch.setattr(celery.worker.request, "datetime", Ahead)
    assert not is_dropped(contracts.SAMPLE, lives[contracts.SAMPLE])
    assert is_dropped(contracts.SAMPLE, ahead_s - 1)


def is_dropped(job, expires_s):
    """What Celery does with a message of this life as soon as it is sent."""
    app = Celery(set_as_current=False)

    @app.task(name=job, shared=False)
    def task():
        pass

    sent = app.amqp.as_task_v2("1", job, (), {}, expires=expires_s)
    message = SimpleNamespace(
        headers=sent.headers, body=sent.body, payload=sent.body, delivery_info={},
        properties={"correlation_id": "1", "reply_to": ""}, content_type="application/json",
        content_encoding="utf-8")
    request = celery.worker.request.Request(
        message, app=app, decoded=True, headers=sent.headers, body=sent.body, utc=True,
        task=task, on_ack=lambda *told: None, hostname="n", eventer=None)
    return bool(request.maybe_expire())


def test_it_says_so_once_and_once_that_it_is_over(caplog):
    caplog.set_level(logging.INFO, "nodeworker.clock_watch")
    clock = ClockWatch()
    for ahead_s in (0, 4.9, -4.9, 20.2, 19, 8, 3, 0, -20, -3600, 20, 0):
        clock.note(ahead_s)
    said = [(each.levelname, each.getMessage().split(";")[0]) for each in caplog.records]
    assert said == [
        ("WARNING", "this host's clock is 20 s ahead of the database's"),
        ("INFO", "this host's clock and the database's are the same again"),
        ("WARNING", "this host's clock is 20 s behind the database's"),
        ("WARNING", "this host's clock is 20 s ahead of the database's"),
        ("INFO", "this host's clock and the database's are the same again"),
    ]


class Over(Exception):
    """Ends what goes on for ever."""


def test_the_ctl_lane_looks_with_every_heartbeat(nodeless, set_clocks, monkeypatch, caplog):
    set_clocks(20)
    pauses = iter([None, None])

    def pause(_):
        if next(pauses, Over) is Over:
            raise Over

    monkeypatch.setattr(startup, "time", SimpleNamespace(sleep=pause))
    monkeypatch.setattr(startup, "node_facts", lambda deps: NODE)
    deps = SimpleNamespace(settings=nodeless.settings,
                           rules=Deps(nodeless.settings, ListQueue(), None))
    with pytest.raises(Over):
        startup._heartbeats(deps, SimpleNamespace(list_up=lambda: None))
    assert caplog.text.count("20 s ahead of the database's") == 1
