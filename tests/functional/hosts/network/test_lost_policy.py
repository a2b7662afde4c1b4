"""The packet policy of a node is lost, and with it every forwarded port: whoever loads it again
first, each running sandbox has its ports back. In a network namespace, without a VM."""
import contextlib
import threading
import time
from dataclasses import replace

import pytest

from config.settings import load
from nodeworker.hypervisor.driver import Forward
from nodeworker.hypervisor.qemu.driver import QemuDriver
from nodeworker.hypervisor.qemu.records import Phase, Task
from nodeworker.hypervisor.qemu.vm import Vm
from nodeworker.network import namespaces, nft
from tests.host.disk_node import Node
from tests.host.guest_places import addresses_asleep
from tests.stack.waiting import until

NAME = "tlost"


class LosingNode(Node):
    """A node whose policy can be lost; all that touches the network runs in the namespace."""

    def __init__(self, directory):
        super().__init__(directory)
        self.environ["SVC_NET_PREFIX"] = NAME
        self.restart()
        self.network = self.host.network

    def run(self, count=2):
        """So many running sandboxes with the ports they should have, as records, slots and
        forwarded ports say."""
        wanted = {}
        for number in range(count):
            box = self.create()
            slot = self.network.claim(box)
            vm = Vm(self.host, self.host.rundir(box))
            vm.write(replace(vm.record, phase=Phase.RUNNING, slot=slot.number,
                             agent_port=30001 + number, forwards=(Forward(20001 + number, 8000),)),
                     durable=True)
            self.network.forward(slot, vm.record.host_ports(), fresh=True)
            wanted[box] = {port: (slot.address, inner)
                           for port, inner in vm.record.host_ports().items()}
        return wanted

    def lose(self):
        """As `nft flush ruleset` does, or a firewall manager that loads its own rules."""
        nft.apply(f"delete table inet {NAME}\n")

    def another_worker(self):
        """The network as another process of the node knows it, one that has just begun."""
        return QemuDriver(load(self.environ)).host.network

    def forwarded(self):
        return self.network.forwards.current()

    def asleep(self):
        return addresses_asleep(NAME)

    def end(self):
        for owner in list(self.network.slots.owners()):
            self.network.slots.release(owner)


@pytest.fixture
def on_node(tmp_path):
    """Carries out a function of a node, which has just been started, in a namespace of its own."""
    namespaces.create_namespace(NAME)
    with contextlib.ExitStack() as undo:
        undo.callback(namespaces.delete_namespace, NAME)
        node = LosingNode(tmp_path)
        undo.callback(namespaces.in_namespace, NAME, node.end)
        namespaces.in_namespace(NAME, node.driver.reclaim)
        yield lambda work: namespaces.in_namespace(NAME, lambda: work(node))


def ports_of(wanted, *boxes):
    return {port: target for box in boxes or wanted for port, target in wanted[box].items()}


@pytest.mark.parametrize("first", ["a port", "a slot", "nobody"])
def test_whoever_loads_it_again_every_sandbox_has_its_ports_back(on_node, first):
    def lost_and_found(node):
        wanted = node.run()
        worker, one = node.another_worker(), min(wanted)
        node.lose()
        if first == "a port":  # of a create or a wake, in the moment after
            slot = node.network.slots.slot(node.network.slots.owners()[one])
            worker.forward(slot, {20009: 8000}, fresh=True)
            assert worker.forwards.current() == {20009: (slot.address, 8000)}
        elif first == "a slot":
            worker.prepare()
        assert not node.network.is_intact()
        assert node.driver.restore_network()
        assert node.forwarded() == ports_of(wanted)
        assert not node.driver.restore_network()

    on_node(lost_and_found)


def test_a_worker_that_begins_leaves_an_intact_policy_alone(on_node):
    def begun(node):
        before = nft.generation()
        node.another_worker().prepare()
        assert nft.generation() == before and not node.driver.restore_network()

    on_node(begun)


@pytest.mark.parametrize("at_work", ["another holds it", "it starts", "it fails"])
def test_a_sandbox_that_cannot_be_given_its_ports_yet_keeps_no_other_from_them(on_node, at_work):
    def lost_and_found(node):
        wanted = node.run(3)
        busy, *others = sorted(wanted)
        go_on = made_busy(node, busy, at_work)
        node.lose()
        assert node.driver.restore_network()
        assert node.forwarded() == ports_of(wanted, *others)
        before = nft.generation()
        assert not node.driver.restore_network()
        assert nft.generation() == before, "nothing is loaded again for its sake"
        go_on()
        assert not node.driver.restore_network()
        assert node.forwarded() == ports_of(wanted)
        before = nft.generation()
        assert not node.driver.restore_network() and nft.generation() == before

    on_node(lost_and_found)


def made_busy(node, box, how):
    """Keeps a look from the sandbox; returns what ends that."""
    rundir = node.host.rundir(box)
    if how == "it starts":
        vm = Vm(node.host, rundir)
        vm.write(replace(vm.record, task=Task.WAKE), durable=True)
        return lambda: vm.write(replace(vm.record, task=None), durable=True)
    lock = rundir.path / "op.lock"
    if how == "it fails":
        lock.unlink()
        lock.mkdir()
        return lock.rmdir
    held, done = threading.Event(), threading.Event()

    def hold():
        with rundir.operation():
            held.set()
            done.wait(60)

    worker = threading.Thread(target=hold)
    worker.start()
    until(held.is_set)
    return lambda: (done.set(), worker.join())


def test_one_that_sleeps_by_then_is_not_waited_for(on_node):
    def lost_and_found(node):
        wanted = node.run()
        sleeper, other = sorted(wanted)
        go_on = made_busy(node, sleeper, "another holds it")
        node.lose()
        assert node.driver.restore_network()
        go_on()
        node.network.release(sleeper)
        node.driver.restore_network()
        assert node.network.may_lack_ports == set()
        assert node.forwarded() == ports_of(wanted, other)

    on_node(lost_and_found)


def test_those_who_sleep_in_a_kept_process_are_asleep_again_and_those_who_run_are_not(on_node):
    def lost_and_found(node):
        wanted = node.run()
        sleeper, other = sorted(wanted)
        vm = Vm(node.host, node.host.rundir(sleeper))
        vm.write(replace(vm.record, phase=Phase.SAVED, kept_since_s=time.monotonic()),
                 durable=True)
        node.network.close(sleeper)
        assert not node.driver.restore_network()
        assert node.asleep() == [vm.slot.address]
        node.lose()
        assert node.driver.restore_network()
        assert node.asleep() == [vm.slot.address]
        assert node.forwarded() == ports_of(wanted, other)

    on_node(lost_and_found)


def test_a_list_that_others_are_changing_is_not_a_loss(on_node, monkeypatch):
    def busy_once(node):
        slot = node.network.claim("box")
        assert node.network.is_intact()
        with monkeypatch.context() as busy:
            def add(address, ports):
                busy.undo()
                raise nft.NftError("busy")

            busy.setattr(node.network.forwards, "add", add)
            node.network.forward(slot, {20001: 8000}, fresh=True)
        assert node.network.is_intact()
        assert node.forwarded() == {20001: (slot.address, 8000)}

    on_node(busy_once)
