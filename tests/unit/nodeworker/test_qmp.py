"""The QEMU monitor's client against a monitor that answers, refuses and is silent."""
import contextlib
import itertools
import json
import socket
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from nodeworker.hypervisor.qemu.process import monitor as monitors
from nodeworker.hypervisor.qemu.process import qmp


@pytest.fixture
def monitor(tmp_path):
    """A fake end of a monitor socket below a path too long for a socket address; yields what to
    answer with."""
    path = tmp_path / ("d" * 100) / "qmp.sock"
    path.parent.mkdir()
    server, answers, seen = qmp.listen(path), [], []

    def serve():
        peer, _ = server.accept()
        with peer, peer.makefile("rwb") as stream:
            stream.write(b'{"QMP": {}}\n')
            stream.flush()
            decoder = json.JSONDecoder()
            text = ""
            while chunk := peer.recv(65536):
                text += chunk.decode()
                while text:
                    request, end = decoder.raw_decode(text)
                    text = text[end:]
                    seen.append(request)
                    greets = request["execute"] == "qmp_capabilities"
                    for line in [{"return": {}}] if greets else answers.pop(0):
                        stream.write(json.dumps(line).encode() + b"\n")
                    stream.flush()
                    if answers and answers[0] is None:
                        return  # it ends

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path, answers, seen
    server.close()


def test_a_command_skips_events_and_returns_its_own_answer(monitor):
    path, answers, seen = monitor
    answers.append([{"event": "STOP"}, {"return": {"status": "paused"}},
                    {"event": "MIGRATION", "data": {}}])
    with qmp.QmpClient(path) as client:
        assert client.run("query-status", {"some": 1}) == {"status": "paused"}
        assert client.wait_event(lambda event: event["event"] == "MIGRATION", 5)
    assert seen[1] == {"execute": "query-status", "id": 2, "arguments": {"some": 1}}


def test_the_late_answer_to_a_command_is_not_taken_for_the_next_ones(monitor):
    path, answers, _ = monitor
    answers += [[], [{"return": "of query-block", "id": 2}, {"error": {"desc": "no"}, "id": 2},
                     {"return": "of cont", "id": 3}]]
    with qmp.QmpClient(path) as client:
        client.deadline_s = 0.3
        with pytest.raises(qmp.QmpError):
            client.run("query-block")
        client.deadline_s = 30
        assert client.run("cont") == "of cont"


def test_a_refusal_and_a_silence_are_errors(monitor):
    path, answers, _ = monitor
    answers += [[{"error": {"desc": "no such thing"}}], []]
    with qmp.QmpClient(path) as client:
        with pytest.raises(qmp.QmpError, match="no such thing"):
            client.run("impossible")
        client.deadline_s = 0.3
        with pytest.raises(qmp.QmpError):
            client.run("forgotten")


def test_all_commands_together_have_a_deadline_too(monitor):
    path, answers, _ = monitor
    answers += [[{"return": {}}], []]
    with qmp.QmpClient(path, within_s=60) as client:
        assert client.run("first") == {}
        client._ends_at = time.monotonic()
        with pytest.raises(qmp.QmpError, match="in time"):
            client.run("second")


def told(status):
    return {"event": "MIGRATION", "data": {"status": status}}


@pytest.mark.parametrize("said", [
    [{"return": {}}, told("active"), told("failed")], [{"error": {"desc": "no such descriptor"}}],
], ids=["failed", "refused"])
def test_a_state_that_qemu_says_it_cannot_load_is_of_no_use(monitor, said):
    path, answers, _ = monitor
    answers += [[{"return": {}}], [{"return": {}}], said]
    with monitors.Monitor(path) as client, pytest.raises(monitors.LoadFailed):
        client.load("7")


@pytest.mark.parametrize("commands", [0, 1, 2, 3], ids=lambda number: f"after {number}")
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "silent"])
def test_a_qemu_that_ends_or_is_silent_while_it_loads_says_nothing_of_the_state(
        monitor, monkeypatch, commands, ends):
    monkeypatch.setattr(monitors, "_MIGRATION_LIMIT_S", 0.2)
    path, answers, _ = monitor
    answers += [[{"return": {}}]] * commands + [None if ends else []]
    with monitors.Monitor(path) as client:
        client.deadline_s = 0.2  # not before: the greeting has its time
        with pytest.raises(qmp.QmpError):
            client.load("7")


def test_no_monitor_is_an_error_at_once(tmp_path):
    with pytest.raises(qmp.QmpError):
        qmp.QmpClient(tmp_path / "qmp.sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(Path(tmp_path) / "stale"))
        with pytest.raises(qmp.QmpError):
            qmp.QmpClient(tmp_path / "stale")


def register_of(text):
    return b'{"event": "STOP", "data": {"reason": "' + text + b'"}}\n'


@pytest.mark.parametrize("flood", [
    b"x" * 65536, register_of(b"y" * 1000), b"[[],[],[]]\n", b"[" * 60000 + b"\n", b"{}\n" * 100,
    b'{"return": ' + b"9" * 5000 + b"}\n", b'{"error": 7}\n'
], ids=["endless line", "events", "lists", "depth", "nothing", "number", "odd error"])
def test_a_hostile_monitor_is_an_error_and_costs_no_memory(tmp_path, flood):
    """750 MB were kept of one that sent events for 8 s."""
    server, sent = qmp.listen(tmp_path / "qmp.sock"), []

    def serve():
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(b'{"QMP": {}}\n{"return": {}}\n')
            peer.recv(65536)
            while sum(sent) < 1 << 30:
                peer.sendall(flood)
                sent.append(len(flood))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    tracemalloc.start()
    try:
        with qmp.QmpClient(tmp_path / "qmp.sock") as client, pytest.raises(qmp.QmpError) as error:
            client.run("query-status")
            client.wait_event(lambda event: event["event"] == "MIGRATION", 30)
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
        assert len(str(error.value)) < 1000
    finally:
        tracemalloc.stop()
    thread.join(10)
    assert sum(sent) < 16 * 1024 * 1024
    server.close()


@pytest.fixture
def flooding(tmp_path):
    """A client whose monitor has sent thousands of small events at once, and has ended then."""
    server = qmp.listen(tmp_path / "qmp.sock")

    def serve():
        peer, _ = server.accept()
        with peer:
            peer.sendall(b'{"QMP": {}}\n{"return": {}}\n' + b'{"event": 1}\n' * 4000)
            peer.recv(65536)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with qmp.QmpClient(tmp_path / "qmp.sock") as client:
        thread.join(10)
        yield client
    server.close()


def test_each_event_is_looked_at_once(flooding):
    looks = itertools.count()
    with pytest.raises(qmp.QmpError, match="QEMU ended"):
        flooding.wait_event(lambda event: next(looks) == 4000, 60)
    assert next(looks) == len(flooding.events) == 4000


def test_a_flood_of_events_is_given_up_at_the_deadline(flooding):
    looks = itertools.count(1)

    def slow(event):
        assert next(looks) < 50, "it goes on for as long as there are events"
        time.sleep(0.02)

    with pytest.raises(qmp.QmpError, match="in time"):
        flooding.wait_event(slow, 0.2)
