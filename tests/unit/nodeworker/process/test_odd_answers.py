"""A machine whose monitor answers what no QEMU does: what is asked of the driver fails for that
machine alone, as a DriverError, and nobody who looks at all machines ends."""
import json
import os
import socket
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nodeworker import startup
from nodeworker.hypervisor.driver import DriverError, VmState
from nodeworker.hypervisor.qemu.disk import flatten, ram_room
from nodeworker.hypervisor.qemu.disk.ram_shares import RamShares
from nodeworker.hypervisor.qemu.process import qmp
from nodeworker.hypervisor.qemu.records import Phase
from nodeworker.hypervisor.qemu.vm import Vm
from tests.host.disk_node import BLOCK, BLOCKS, SHAPE, Node

DEEP = "[" * 900 + "]" * 900
ODD = {
    "list": "[]", "object": "{}", "number": "7", "nothing": "null", "text": '"x"',
    "lists": "[[]]", "objects": "[{}]", "no status": '{"status": []}',
    "no disk": '[{"qdev": 1, "inserted": 7}]',
    "endless": '[{"inserted": {"node-name": [], "backing_file_depth": Infinity}}]',
    "long": json.dumps([{"inserted": {"node-name": "x" * 9999, "backing_file_depth": "y" * 9999}}]),
    "deep": f'[{{"inserted": {{"node-name": {DEEP}, "backing_file_depth": {DEEP}}}}}]',
}
EVENTS = ['{"event": "MIGRATION"}', '{"event": "MIGRATION", "data": 7}',
          '{"event": "MIGRATION", "data": {"status": []}}']


def serve(server, answer):
    """To each command the same answer, after odd events."""
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        with peer:
            peer.sendall(b'{"QMP": {}}\n')
            while peer.recv(65536):
                lines = [*EVENTS, f'{{"return": {answer}}}']
                peer.sendall("".join(f"{line}\n" for line in lines).encode())


@pytest.fixture(params=list(ODD.values()), ids=list(ODD))
def odd(request, tmp_path, monkeypatch):
    """A node with a running sandbox, `box0`, whose monitor is odd; one whose memory may grow."""
    monkeypatch.setattr(flatten, "_CANCEL_LIMIT_S", 0.05)
    node = Node(tmp_path)
    box = node.create()
    node.write(box, 1, 11)
    layer = node.host.layers.new_reference()
    node.host.layers.create(layer, BLOCK * BLOCKS)
    rundir = node.host.rundir(box)
    rundir.make_ram(SHAPE.mem_mb)
    vm = Vm(node.host, rundir)
    machine = replace(vm.machine, chain=(*vm.machine.chain, layer))
    vm.write(replace(vm.record, machine=machine, phase=Phase.RUNNING), durable=True)
    lock, server = rundir.take_vm_lock(), qmp.listen(rundir.monitor)
    threading.Thread(target=serve, args=(server, request.param), daemon=True).start()
    assert node.driver.inspect(box) is VmState.RUNNING
    yield node
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    os.close(lock)
    node.check_complete()


@pytest.mark.parametrize("operation", [
    ("resume_if_paused", "box0"), ("end_if_halted", "box0"), ("hibernate", "box0"),
    ("snapshot", "box0", "snap"), ("grow_disk", "box0", 2 * BLOCK * BLOCKS),
], ids=lambda operation: operation[0])
def test_what_is_asked_of_one_machine_is_a_driver_error_or_has_no_effect(odd, operation):
    name, *arguments = operation
    try:
        getattr(odd.driver, name)(*arguments)
    except DriverError as error:
        assert len(str(error)) < 1000
    assert odd.driver.inspect("box0") in (VmState.RUNNING, VmState.PARTIAL)


def test_looks_at_all_machines_are_made_to_the_end(odd, monkeypatch):
    odd.host.ram_shares = RamShares([odd.host.sandboxes], lambda: ["box0"], 0.25)
    monkeypatch.setattr(ram_room, "_free_bytes", lambda host: 0)
    assert odd.driver.hold_growing() == []
    (odd.host.settings.node_dir / "writes-are-slow").touch()
    assert odd.driver.pace_writes() in (None, False)


def test_machines_that_grow_are_held_whatever_a_look_at_them_raised(monkeypatch, caplog):
    monkeypatch.setattr(startup, "_HOLD_POLL_S", 0)
    looks = iter([TypeError("odd"), DriverError("silent"), ["box"], KeyboardInterrupt()])

    def hold_growing():
        found = next(looks)
        if isinstance(found, BaseException):
            raise found
        return found

    with pytest.raises(KeyboardInterrupt):
        startup._hold_growing(SimpleNamespace(driver=SimpleNamespace(hold_growing=hold_growing)))
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert "sandbox box is held" in caplog.text and "TypeError: odd" in caplog.text
