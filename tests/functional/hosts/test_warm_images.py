"""Templates are wanted, baked one at a time and remembered; here with the simulated driver in this
process."""
import json
import os
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from config.settings import Settings
from models.database import connection, database, now
from models.nodes import Node
from models.warm_images import WarmImage
from nodeworker import warm_images as work
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import DriverError, Shape
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.wiring import NodeDeps
from services.hosts import warm_images
from services.hosts.nodes import NodeFacts, heartbeat
from services.hosts.warm_images import BAKES, Kind
from services.protocols import Deps

pytestmark = pytest.mark.usefixtures("fresh_rows")
FACTS = NodeFacts("n1", "127.0.0.1", 8, 16384, 20000, 20099, {"image": "first"})
MEDIUM, LARGE = Shape(2, 2048), Shape(4, 4096)


class Letters:
    """A broker in a list; `deliver` hands everything to the node, as its bulk lane would."""

    def __init__(self):
        self.sent = []

    def publish(self, queue, job, payload):
        self.sent.append((queue, job, dict(payload)))

    def deliver(self, host):
        letters, self.sent = self.sent, []
        for queue, job, payload in letters:
            assert (queue, job) == ("node.n1.bulk", "node.warm_image.bake")
            work.bake(host, Shape(payload["vcpus"], payload["mem_mb"]), presets=payload["presets"])
        return len(letters)


@pytest.fixture
def host(tmp_path):
    """A node on an empty database and an empty directory."""
    with connection():
        database.execute_sql("TRUNCATE warm_images, nodes, outbox CASCADE")
    heartbeat(FACTS)
    settings = Settings(node_id="n1", node_dir=tmp_path, driver="simulated", presets=())
    return NodeDeps(settings, SimulatedDriver(settings), Letters(), lambda sandbox: None)


def rows():
    return {(view.vcpus, view.mem_mb): view for view in warm_images.list_all("n1")}


def state(shape):
    return rows()[shape.vcpus, shape.mem_mb].state.value


def want(host, shape, *, presets=False):
    with connection():
        host.queue.sent += [(one.queue, one.job, one.payload)
                            for one in warm_images.want(
                                Kind("n1", shape.vcpus, shape.mem_mb, presets))]


def age(column):
    """Make it as late as if the rows had waited for an hour."""
    with connection():
        WarmImage.update(**{column: now() - timedelta(hours=1)}).execute()


def sweep(host):
    return BAKES.announce_due(Deps(host.settings, host.queue, None), 3600)


def test_a_starting_node_bakes_its_sizes_and_what_was_ever_asked_for(host):
    with connection():
        work.compare(host, FACTS)
    assert {shape: view.state.value for shape, view in rows().items()} == {(1, 1024): "queued"}
    assert host.queue.deliver(host) == 1 and state(Shape(1, 1024)) == "baked"
    want(host, MEDIUM)
    host.queue.deliver(host)
    for path in (host.settings.node_dir / "templates").iterdir():
        path.unlink()  # as a new image would
    with connection():
        work.compare(host, FACTS)
    assert {view.state.value for view in rows().values()} == {"queued"}
    while host.queue.deliver(host):
        pass
    assert host.driver.has_warm_image(MEDIUM) and host.driver.has_warm_image(Shape(1, 1024))


def test_a_template_that_is_there_is_found_and_not_baked_again(host):
    host.driver.bake(Shape(1, 1024))
    with connection():
        work.compare(host, FACTS)
    view = rows()[1, 1024]
    assert view.state.value == "baked" and view.image == "first" and host.queue.sent == []


def test_a_shape_the_node_can_never_hold_is_not_baked_and_says_why(host):
    want(host, Shape(12, 36864))
    with connection():
        work.compare(host, FACTS)
    view = rows()[12, 36864]
    assert (
        view.state.value == "failed"
        and "8 vCPUs and 16384 MB" in view.error
        and view.next_try_at is None
    )
    host.queue.sent.clear()
    want(host, Shape(12, 36864))
    assert host.queue.sent == [] and sweep(host) == 0
    with connection():
        work.compare(host, replace(FACTS, vcpus=16, mem_mb=40000))
    assert state(Shape(12, 36864)) == "queued", "the node has grown"


def test_an_unknown_size_in_the_settings_does_not_stop_the_node(host):
    unknown = Settings(node_id="n1", node_dir=host.settings.node_dir, bake_sizes=("tiny", "small"),
                       presets=())
    with connection():
        work.compare(NodeDeps(unknown, host.driver, host.queue, host.agent), FACTS)
    assert rows().keys() == {(1, 1024)}


def test_asking_again_changes_nothing_while_it_is_under_way(host):
    for _ in range(3):
        want(host, MEDIUM)
    assert len(host.queue.sent) == 1
    host.queue.deliver(host)
    want(host, MEDIUM)
    assert state(MEDIUM) == "queued", "it was baked, and yet somebody found it missing"


def test_a_lost_message_is_sent_again_and_a_second_one_finds_nothing_to_do(host):
    want(host, MEDIUM)
    host.queue.sent.clear()
    assert sweep(host) == 0
    age("announce_at")
    assert sweep(host) == 1
    host.queue.sent *= 2
    assert host.queue.deliver(host) == 2 and rows()[2, 2048].attempts == 0
    age("announce_at")
    with connection():
        Node.update(heartbeat_at=now() - timedelta(hours=1)).execute()
        WarmImage.update(state="queued").execute()
    assert sweep(host) == 0, "a silent node is not told"


def test_one_is_baked_at_a_time_and_the_next_is_told_of_at_its_end(host, monkeypatch):
    begun, go_on, phases = threading.Event(), threading.Event(), []

    def slowly(shape, progress, *, presets):
        progress("booting")
        phases.append(rows()[shape.vcpus, shape.mem_mb].phase)
        begun.set()
        assert go_on.wait(20)

    monkeypatch.setattr(host.driver, "bake", slowly)
    want(host, MEDIUM)
    want(host, LARGE)
    first, second = host.queue.sent
    host.queue.sent = []
    baker = threading.Thread(target=work.bake, args=(host, MEDIUM))
    baker.start()
    assert begun.wait(20)
    work.bake(host, LARGE)
    assert (state(MEDIUM), state(LARGE)) == ("baking", "queued") and phases == ["booting"]
    with connection():
        work.look_after(host)
    assert state(MEDIUM) == "baking", "its worker lives"
    go_on.set()
    baker.join()
    assert state(MEDIUM) == "baked" and host.queue.sent == [second]
    assert host.queue.deliver(host) == 1 and state(LARGE) == "baked"


def test_a_bake_whose_worker_died_is_begun_again_and_put_off_if_it_always_does(host):
    want(host, MEDIUM)
    kind = Kind("n1", 2, 2048)
    for attempt in (1, 2, 3):
        host.queue.sent.clear()
        descriptor = locks.try_lock(work.lock_file(host.settings))
        with connection():
            assert warm_images.claim(kind) and not warm_images.claim(kind)
            (seen,) = warm_images.list_baking("n1")
            work.look_after(host)
            assert state(MEDIUM) == "baking", "the lock is held"
        os.close(descriptor)
        with connection():
            work.look_after(host)
            assert warm_images.requeue_abandoned(seen) == [], "once is enough"
        assert len(host.queue.sent) == (0 if attempt == 3 else 1)
    view = rows()[2, 2048]
    assert view.state.value == "failed" and "attempt 3" in view.error and view.next_try_at > now()


def test_a_failed_bake_waits_longer_each_time_and_creates_do_not_hurry_it(host, monkeypatch):
    def fail(shape, progress, *, presets):
        raise DriverError("no more memory")

    waits = []
    with monkeypatch.context() as broken:
        broken.setattr(host.driver, "bake", fail)
        want(host, MEDIUM)
        for _ in range(4):
            host.queue.deliver(host)
            view = rows()[2, 2048]
            assert view.state.value == "failed" and "no more memory" in view.error
            waits.append((view.next_try_at - now()).total_seconds())
            want(host, MEDIUM)
            assert host.queue.sent == [] and sweep(host) == 0
            age("announce_at")
            assert sweep(host) == 1
    assert all(2.5 > later / earlier > 1.5 for earlier, later in zip(waits, waits[1:])), waits
    host.queue.deliver(host)
    view = rows()[2, 2048]
    assert (view.state.value, view.error, view.attempts) == ("baked", None,
                                                             0) and view.took_s is not None


def test_a_lane_that_starts_does_not_wait(host):
    want(host, MEDIUM)
    host.queue.sent.clear()
    with connection():
        BAKES.make_due("n1")
    assert sweep(host) == 1


def test_images_with_the_presets_are_baked_after_those_without(host):
    chosen = replace(host, settings=replace(host.settings, presets=("pi",)))
    with connection():
        work.compare(chosen, FACTS)
        assert {(view.vcpus, view.presets) for view in warm_images.list_all("n1")} == {
            (1, False), (1, True)}
    host.queue.sent.clear()
    want(host, MEDIUM)
    host.queue.sent.clear()
    with connection():
        order = []
        while letters := warm_images.announce_next("n1"):
            order.append(letters[0].payload)
            WarmImage.update(state="baked").where(
                (WarmImage.vcpus == order[-1]["vcpus"])
                & (WarmImage.presets == order[-1]["presets"])).execute()
    assert [(each["vcpus"], each["presets"]) for each in order] == [
        (1, False), (2, False), (1, True)]


def test_one_with_the_presets_that_is_told_first_lets_the_others_go_first(host):
    want(host, MEDIUM, presets=True)
    want(host, MEDIUM)
    plain = host.queue.sent.pop()
    assert host.queue.deliver(host) == 1 and not rows_with_presets()
    assert host.queue.sent == [plain], "it has the other one told again"
    assert host.queue.deliver(host) == 1 and host.driver.has_warm_image(MEDIUM)
    assert host.queue.deliver(host) == 1 and rows_with_presets() == ["baked"]


def test_a_node_that_is_to_have_presets_no_more_bakes_none(host):
    want(host, MEDIUM, presets=True)
    host.queue.sent.clear()
    with connection():
        work.compare(host, FACTS)
    (view,) = [view for view in warm_images.list_all("n1") if view.presets]
    assert view.state.value == "failed" and "SVC_PRESETS" in view.error and not view.next_try_at
    assert [payload["presets"] for _, _, payload in host.queue.sent] == [False]


def rows_with_presets():
    """States of those with the presets that were ever begun."""
    return [view.state.value for view in warm_images.list_all("n1") if view.presets
            and view.began_at]


def test_a_preset_that_failed_is_told_and_tried_again_with_its_bake(host):
    chosen = replace(host, settings=replace(host.settings, presets=("pi", "codex")),
                     driver=SimulatedDriver(replace(host.settings, presets=("pi", "codex"))))
    record = host.settings.node_dir / "presets.json"
    entry = {"state": "failed", "version": "1", "reason": "its registry is silent"}
    record.write_text(json.dumps({"presets": {"codex": entry, "claude": entry}}))
    want(chosen, MEDIUM, presets=True)
    host.queue.deliver(chosen)
    (view,) = warm_images.list_all("n1")
    assert view.state.value == "failed" and "codex: its registry is silent" in view.error
    assert "claude" not in view.error, "nobody asked for it"
    assert chosen.driver.has_warm_image(MEDIUM, presets=True), "the others can be used meanwhile"
    assert not chosen.driver.has_warm_image(MEDIUM)
    record.unlink()
    age("announce_at")
    assert sweep(host) == 1 and host.queue.deliver(chosen) == 1
    (view,) = warm_images.list_all("n1")
    assert view.presets and view.state.value == "baked" and view.error is None
