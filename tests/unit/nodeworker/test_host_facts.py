"""What the QEMU driver knows of its host and its processes, and what it makes up for a guest. Saved
memory counts as made on the host that its process was started on, whatever the host is later."""
import contextlib
import itertools
import json
import os
import re
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nodeworker.hypervisor.driver import MachineSpec, Shape
from nodeworker.hypervisor.qemu import host
from nodeworker.hypervisor.qemu.guest import identity
from nodeworker.hypervisor.qemu.operations import cold_boot, hibernate
from nodeworker.hypervisor.qemu.process import qemu_process, qmp, timestamp_counter
from nodeworker.hypervisor.qemu.process.qemu_process import start_ticks
from nodeworker.hypervisor.qemu.records import Phase, Task
from nodeworker.hypervisor.qemu.vm import Vm
from tests.host.disk_node import SHAPE, Node

SAVED = b'{"event": "MIGRATION", "data": {"status": "completed"}}\n{"return": {}}\n'


def test_identities_differ_in_everything_and_the_host_key_is_one_openssh_reads(tmp_path):
    one, other = identity.new_identity("box1"), identity.new_identity("box1")
    assert one.machine_id != other.machine_id and one.host_key_private != other.host_key_private
    assert re.fullmatch("[0-9a-f]{32}", one.machine_id)
    assert one.host_key_private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert re.fullmatch(r"ssh-ed25519 \S+ root@box1\n", one.host_key_public)
    assert one.host_key_private not in repr(one)


def test_the_counter_is_measured_once_per_boot_and_keeps_its_value_within_measuring_noise(tmp_path):
    rate = timestamp_counter.counter_khz(tmp_path)
    assert timestamp_counter.counter_khz(tmp_path) == rate
    for known, kept in ((rate + 1, True), (rate * 2, False)):
        (tmp_path / "tsc.json").write_text(json.dumps({"boot_id": "an earlier one", "khz": known}))
        assert (timestamp_counter.counter_khz(tmp_path) == known) is kept


@pytest.mark.parametrize(("version", "accelerator", "aslr", "same_addresses"), [
    ("8.2.2 (Debian 1:8.2.2+ds-0ubuntu1.18)", "tcg", "0", True),
    ("8.2.2 (Debian 1:8.2.2+ds-0ubuntu1.18)", "tcg", "1", False),
    ("8.2.2 (Debian 1:8.2.2+ds-0ubuntu1.18)", "kvm", "0", False),
    ("10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)", "tcg", "0", False)])
def test_programs_start_at_the_same_addresses_where_the_emulator_would_translate_them_again(
        tmp_path, monkeypatch, version, accelerator, aslr, same_addresses):
    monkeypatch.setattr(host, "qemu_version", lambda: f"QEMU emulator version {version}")
    node = Node(tmp_path)
    shipped = node.host.kernel_command_line(node.host.image)
    warm_image = node.host.warm_image_dir(SHAPE)
    node.environ |= {"SVC_ACCELERATOR": accelerator, "SVC_EMULATED_ASLR": aslr}
    node.restart()
    line = node.host.kernel_command_line(node.host.image)
    assert ("norandmaps" in line.split()) is same_addresses
    assert (node.host.warm_image_dir(SHAPE) == warm_image) is (line == shipped)


def test_a_process_is_known_by_its_start_time():
    assert start_ticks(os.getpid()) == start_ticks(os.getpid())
    assert start_ticks(1 << 30) is None


def test_a_machine_may_start_while_another_thread_collects_what_has_ended(monkeypatch):
    children, started = {}, itertools.count(2)

    class Ended:
        def poll(self):
            children[next(started)] = self
            return 0

    children.update({0: Ended(), 1: Ended()})
    monkeypatch.setattr(qemu_process, "_children", children)
    qemu_process._reap()
    assert set(children) == {2, 3}


def test_secrets_do_not_show_in_the_words_of_a_machine():
    spec = MachineSpec("box", Shape(1, 1024), "hush", 20000, env={"KEY": "hush"})
    assert "hush" not in repr(spec)


def obliging(server):
    """A QEMU that does whatever it is told."""
    with contextlib.suppress(OSError):
        while True:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b'{"QMP": {}}\n')
                while peer.recv(65536):
                    peer.sendall(SAVED)


@pytest.fixture
def version(monkeypatch):
    """Sets the version of QEMU that is installed."""
    def install(number):
        monkeypatch.setattr(host, "qemu_version", lambda: f"QEMU emulator version {number}")
    install("7.2")
    return install


@pytest.fixture
def vm(tmp_path, version):
    """A sandbox that sleeps."""
    node = Node(tmp_path)
    return Vm(node.host, node.host.rundir(node.create()))


def test_what_an_older_process_saves_is_not_restored_by_another_qemu(vm, version, monkeypatch):
    vm.write(replace(vm.record, phase=Phase.RUNNING), durable=True)
    lock, server = vm.rundir.take_vm_lock(), qmp.listen(vm.rundir.monitor)
    threading.Thread(target=obliging, args=(server,), daemon=True).start()
    monkeypatch.setattr(hibernate.kept_machines, "may_keep", lambda host: False)
    monkeypatch.setattr(hibernate, "stop", lambda vm: os.close(lock))
    version("10.0")
    hibernate.hibernate(vm.host, vm.sandbox_id)
    server.close()
    saved = vm.rundir.find_record()
    assert saved.phase is Phase.SAVED and "7.2" in saved.machine.made_on.hypervisor_version
    assert "10.0" in vm.host.mismatch(saved.machine, SHAPE)


def test_a_boot_that_is_tried_again_by_another_worker_is_of_the_host_of_then(vm, version,
                                                                             monkeypatch):
    @contextlib.contextmanager
    def started(vm, state, background):
        # a worker that dies from here on leaves a process
        assert "10.0" in vm.rundir.find_record().machine.made_on.hypervisor_version
        yield SimpleNamespace(launched=SimpleNamespace(process=None), go=lambda monitor: None,
                              wait_reachable=lambda: None)

    monkeypatch.setattr(cold_boot, "started", started)
    monkeypatch.setattr(cold_boot, "await_answer", lambda vm, spec, renew: None)
    monkeypatch.setattr(Vm, "monitor", lambda *_: contextlib.nullcontext())
    vm.write(replace(vm.record, phase=Phase.RUNNING, task=Task.WAKE), durable=True)
    version("10.0")
    spec = MachineSpec(vm.sandbox_id, SHAPE, "token", 20000)
    cold_boot.cold_boot(vm, spec, "no memory", renew=False)
    assert "10.0" in vm.rundir.find_record().machine.made_on.hypervisor_version


def test_qemu_is_asked_for_its_version_again_once_it_is_another_program(tmp_path, monkeypatch):
    program, new = tmp_path / "qemu", tmp_path / "qemu.new"

    def write(path, number):
        path.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho version {number}\n")
        path.chmod(0o700)

    write(program, 7)
    monkeypatch.setattr(host, "_program", lambda: str(program))
    assert [host.qemu_version() for _ in range(3)] == ["version 7"] * 3
    write(new, 10)
    new.rename(program)
    assert [host.qemu_version() for _ in range(3)] == ["version 10"] * 3
    assert (tmp_path / "asked").read_text() == "asked\n" * 2
