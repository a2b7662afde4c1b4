"""A machine whose monitor says nothing, as a hostile guest can have it: whoever looks at all
machines of a node goes on to the next ones soon."""
import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import replace

import pytest

from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.disk import ram_room
from nodeworker.hypervisor.qemu.disk.ram_shares import RamShares
from nodeworker.hypervisor.qemu.process import qmp
from nodeworker.hypervisor.qemu.records import Phase
from nodeworker.hypervisor.qemu.vm import Vm
from tests.host.disk_node import SHAPE, Node

GREETING = b'{"QMP": {}}\n'


def silent(peer, seen):
    """It says nothing until the other hangs up."""
    while peer.recv(65536):
        pass
    seen.append("given up")


def greeting(peer, seen):
    """It greets, and says nothing from then on."""
    peer.sendall(GREETING)
    silent(peer, seen)


def honest(peer, seen):
    """It answers as a machine that runs."""
    peer.sendall(GREETING)
    while text := peer.recv(65536):
        if b'"stop"' in text:
            seen.append("stopped")
        result = {"status": "running"} if b"query-status" in text else {}
        peer.sendall(json.dumps({"return": result}).encode() + b"\n")


def flushing(peer, seen):
    """It stops, and answers only once its disk is flushed, which takes long."""
    peer.sendall(GREETING)
    while b'"stop"' not in peer.recv(65536):
        peer.sendall(b'{"return": {"status": "running"}}\n')
    silent(peer, seen)


@pytest.fixture
def running(tmp_path):
    """Makes a node whose running sandboxes, box0 and so on, have such monitors; returns it, and
    what they have seen."""
    with contextlib.ExitStack() as undo:
        def make(*behaviours):
            node, seen = Node(tmp_path), []
            for behaviour in behaviours:
                rundir = node.host.rundir(node.create())
                rundir.make_ram(SHAPE.mem_mb)
                vm = Vm(node.host, rundir)
                vm.write(replace(vm.record, phase=Phase.RUNNING), durable=True)
                undo.callback(os.close, rundir.take_vm_lock())
                server = undo.enter_context(qmp.listen(rundir.monitor))
                undo.callback(server.shutdown, socket.SHUT_RDWR)
                threading.Thread(target=serve, args=(server, behaviour, seen), daemon=True).start()
            return node, seen

        yield make


def serve(server, behave, seen):
    with contextlib.suppress(OSError):
        while True:
            peer, _ = server.accept()
            with peer:
                behave(peer, seen)


@pytest.mark.parametrize("hostile", [silent, greeting])
def test_machines_that_grow_are_held_before_a_silent_one_is_given_up(running, monkeypatch, hostile):
    node, seen = running(hostile, honest, hostile, honest)
    node.host.ram_shares = RamShares([node.host.sandboxes],
                                     lambda: [f"box{number}" for number in range(4)], 0.25)
    monkeypatch.setattr(ram_room, "_free_bytes", lambda host: 0)
    monkeypatch.setattr(ram_room, "_ANSWER_LIMIT_S", 3.0)  # of a busy machine
    assert node.driver.hold_growing() == ["box1", "box3"]
    assert seen[:2] == ["stopped"] * 2


def test_one_that_stops_and_flushes_for_long_is_held(running, monkeypatch):
    node, _ = running(flushing)
    node.host.ram_shares = RamShares([node.host.sandboxes], lambda: ["box0"], 0.25)
    monkeypatch.setattr(ram_room, "_free_bytes", lambda host: 0)
    assert node.driver.hold_growing() == ["box0"]


@pytest.mark.parametrize("look", ["resume_if_paused", "end_if_halted", "pace_writes"])
def test_a_look_at_a_silent_one_ends_long_before_an_operation_would(running, look):
    node, _ = running(greeting)
    (node.host.settings.node_dir / "writes-are-slow").touch()
    began = time.monotonic()
    with contextlib.nullcontext() if look == "pace_writes" else pytest.raises(DriverError):
        getattr(node.driver, look)(*([] if look == "pace_writes" else ["box0"]))
    assert time.monotonic() - began < qmp.DEADLINE_S / 2
