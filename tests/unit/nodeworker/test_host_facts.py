"""What the QEMU driver knows of its host and its processes, and what it makes up for a guest."""
import itertools
import json
import os
import re

import pytest

from nodeworker.hypervisor.driver import LaunchSpec, Shape
from nodeworker.hypervisor.qemu import host
from nodeworker.hypervisor.qemu.guest import identity
from nodeworker.hypervisor.qemu.process import qemu_process, timestamp_counter
from nodeworker.hypervisor.qemu.process.qemu_process import start_ticks
from tests.host.disk_node import SHAPE, Node


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


def test_secrets_do_not_show_in_a_launch():
    assert "hush" not in repr(LaunchSpec("box", Shape(1, 1024), "hush", 20000, env={"KEY": "hush"}))
