"""Machines that stand ready for creates from a snapshot that is used often: its programs go on in
them, and reach nobody before there is a sandbox."""
import socket
import threading
import time
from contextlib import suppress

import pytest

from config import guest_gateway
from guest.client.errors import AgentError
from nodeworker.hypervisor.driver import Shape, StillStarting
from nodeworker.hypervisor.qemu.guest import first_answer
from nodeworker.hypervisor.qemu.suspended import (
    demand,
    making_spares,
    spare_sources,
    spare_targets,
    warm_spares,
)
from tests.host.driver_checks import pid_of
from tests.host.guest_network import HOST_SIDE, PUBLIC, connects, namespace_of, public_listener
from tests.stack.waiting import until
from tests.vm.spares.checks import IDENTITY, check_nothing_left, check_runs, crash_making, make

SNAPSHOT = "often"
SOURCE = f"snapshot:{SNAPSHOT}"
_SILENCE_S = 1.0
# Tells each of the targets the name of its computer, again and again.
CALL = """
import socket, sys, threading, time
def call(address, port):
    while True:
        with socket.socket() as caller:
            caller.settimeout(0.5)
            try:
                caller.connect((address, port))
                caller.sendall(socket.gethostname().encode())
            except OSError:
                pass
        time.sleep(0.05)
for target in sys.argv[1:]:
    address, port = target.split(":")
    threading.Thread(target=call, args=(address, int(port))).start()
"""


@pytest.fixture
def captured(sparing):
    """A snapshot of a machine that is gone, with a file, something in memory and a program."""
    source = sparing.create()
    sparing.agent(source).exec(shell="sleep infinity", detached=True)
    sparing.shell(source, "echo here > /dev/shm/memory; echo there > /root/disk; sync")
    sparing.driver.snapshot(source.sandbox_id, SNAPSHOT)
    sparing.driver.destroy(source.sandbox_id)
    return sparing


class Calls:
    """The names that callers tell a listener."""

    def __init__(self, listener):
        self._listener, self.names = listener, set()
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self):
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return  # the test is over
            with caller, suppress(OSError):  # its machine may have ended before it told
                caller.settimeout(_SILENCE_S)
                self.names |= {caller.recv(100).decode()} - {""}


def test_a_create_goes_on_with_its_process_memory_and_disk(captured):
    spare = make(captured, SOURCE)
    process = spare.find_record().pid
    taken, other = captured.create(SNAPSHOT), captured.create(SNAPSHOT)
    assert pid_of(captured, taken) == process != pid_of(captured, other)
    for spec in (taken, other):
        check_runs(captured, spec)
        told = captured.shell(spec, "cat /dev/shm/memory /root/disk; pgrep -x sleep | wc -l")
        assert told == "here\nthere\n1\n"
    identities = [captured.shell(spec, IDENTITY).splitlines() for spec in (taken, other)]
    for column in zip(*identities, strict=True):
        assert len(set(column)) == len(identities), column
    found = captured.agent(taken).exec(
        shell=f"hostname; grep -rlsF {spare.sandbox_id} /etc /var /root /home /run /tmp /dev/shm")
    assert found.stdout.decode().split() == [taken.sandbox_id]
    captured.driver.hibernate(taken.sandbox_id)
    assert not captured.driver.wake(taken).cold
    assert captured.shell(taken, "cat /dev/shm/memory") == "here\n"


def test_its_programs_reach_nobody_before_there_is_a_sandbox(sparing):
    gateway = sparing.settings.guest_gateway_port
    with (
        public_listener(namespace_of(sparing.settings.net_prefix), PUBLIC, HOST_SIDE) as outside,
        socket.create_server(("127.0.0.1", gateway), backlog=16) as inside,
    ):
        targets = (f"{PUBLIC}:{outside.getsockname()[1]}"
                   f" {guest_gateway.ADDRESS}:{guest_gateway.PORT}")
        heard = [Calls(outside), Calls(inside)]
        source = sparing.create()
        sparing.agent(source).write_file("/root/call.py", CALL.encode())
        sparing.agent(source).exec(shell=f"python3 /root/call.py {targets}", detached=True)
        until(lambda: all(each.names == {source.sandbox_id} for each in heard))
        sparing.driver.snapshot(source.sandbox_id, SNAPSHOT)
        sparing.driver.destroy(source.sandbox_id)
        time.sleep(3 * _SILENCE_S)  # what the source has begun to tell has been heard
        for each in heard:
            each.names.clear()
        make(sparing, SOURCE)
        spec = sparing.create(SNAPSHOT)
        until(lambda: all(each.names for each in heard))
        assert [each.names for each in heard] == [{spec.sandbox_id}] * len(heard)
        sparing.driver.destroy(spec.sandbox_id)


def test_what_is_used_often_gets_one_until_it_is_deleted(captured):
    host = captured.driver.host
    for _ in range(2):
        captured.driver.destroy(captured.create(SNAPSHOT).sandbox_id)
    assert spare_targets.targets(host)[SOURCE] == 1
    while (name := making_spares.find_missing(host)) != SOURCE:
        make(captured, name)
    make(captured, SOURCE)
    assert warm_spares.count_ready(host)[SOURCE] == 1
    captured.driver.delete_snapshot(SNAPSHOT)
    assert captured.driver.tend_suspended().ended == 1
    assert SOURCE not in warm_spares.count_ready(host)


def test_a_copy_of_another_kind_takes_none(captured):
    make(captured, SOURCE)
    for spec in (captured.spec(SNAPSHOT, from_disk=True),
                 captured.spec(SNAPSHOT, shape=Shape(1, 2048))):
        assert spare_sources.source_for(captured.driver.host, spec) is None
    running = captured.create()
    captured.driver.snapshot(running.sandbox_id, "once", transient=True)
    assert spare_sources.source_for(captured.driver.host, captured.spec("once")) is None


def test_one_with_much_memory_to_copy_gets_none(captured, monkeypatch):
    monkeypatch.setattr(spare_sources, "_MOST_COPIED_BYTES", 1024)
    assert spare_sources.find_source(captured.driver.host, SOURCE) is None
    making_spares.make(captured.driver.host, SOURCE)
    check_nothing_left(captured)


def test_one_whose_agent_is_silent_is_given_up_until_it_is_wanted_anew(sparing, monkeypatch):
    source = sparing.create()
    sparing.agent(source).exec(shell="sleep 1; kill -STOP $PPID", detached=True)
    with pytest.raises(AgentError):
        while True:
            sparing.agent(source).ping(timeout_s=2)
    sparing.driver.snapshot(source.sandbox_id, SNAPSHOT)
    sparing.driver.destroy(source.sandbox_id)
    for _ in range(3):
        demand.note(sparing.driver.host.warm, SOURCE)
    monkeypatch.setattr(first_answer, "_RESTORED_MOMENT_S", 3.0)
    with pytest.raises(StillStarting):
        making_spares.make(sparing.driver.host, SOURCE)
    assert SOURCE not in demand.count(sparing.driver.host.warm)
    check_nothing_left(sparing)


@pytest.mark.parametrize("point", ["spare.loaded", "spare.running", "spare.ready"])
def test_the_death_of_who_makes_one(captured, tmp_path, point):
    crash_making(captured, tmp_path, point, SOURCE)
    captured.driver.tend_suspended()
    check_nothing_left(captured)
    check_runs(captured, captured.create(SNAPSHOT))


@pytest.mark.parametrize("point", ["spare.exchanged", "create.running", "create.adopted"])
def test_the_death_of_who_takes_one(captured, internet, tmp_path, point):
    make(captured, SOURCE)
    spec = captured.spec(SNAPSHOT)
    captured.crash_at(point, tmp_path, "create", spec)
    captured.driver.create(spec)
    check_runs(captured, spec)
    assert connects(captured, spec, PUBLIC, internet)
    captured.driver.tend_suspended()
    captured.driver.destroy(spec.sandbox_id)
    check_nothing_left(captured)
