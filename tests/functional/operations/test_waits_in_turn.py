"""An operation that waits for its guest is looked at again from its beginning; what it has waited
for already is not waited for, nor undone, again."""
from dataclasses import replace

import pytest

from bin.stack.free_ports import free_port
from models.states import SandboxStatus
from nodeworker.handlers import lifecycle
from nodeworker.handlers.not_yet import NotYet
from nodeworker.hypervisor.driver import MachineSpec, Shape, StillStarting, VmState
from services.hosts import assignments
from tests.rows.operations import claim


def test_a_sleep_waits_for_the_database_and_then_for_the_flush_and_ends(node, made, monkeypatch):
    def never(*_):
        raise NotYet("its database to reach the store")

    monkeypatch.setattr(lifecycle, "sync_database", never)
    monkeypatch.setattr(lifecycle, "_flush_guest", lambda *_: None)
    node.driver.create(MachineSpec(made, Shape(1, 1024), "token-0123456789", free_port()))
    claimed, sandbox = claim(made), assignments.get_assigned(node.settings, made)
    with pytest.raises(NotYet):
        lifecycle.hibernate(node, claimed, sandbox)
    later = replace(claimed, waits_for=lifecycle._FLUSH)
    assert lifecycle.hibernate(node, later, sandbox).status is SandboxStatus.HIBERNATED


@pytest.mark.parametrize(("state", "destroyed"), [
    (VmState.PARTIAL, []), (VmState.RUNNING, [True]), (None, [True])])
def test_a_copy_of_an_archive_that_is_still_starting_is_left_to_start(
        node, made, monkeypatch, state, destroyed):
    """A second attempt removes a machine into which the first may still be unpacking."""
    seen = []

    def create_again(_):
        raise StillStarting("its guest has not answered", 1.0)

    origin = lifecycle.needed_on_node.find_origin(claim(made, lease_s=-1))
    monkeypatch.setattr(lifecycle.needed_on_node, "find_origin",
                        lambda _: replace(origin, packed="an archive"))
    monkeypatch.setattr(lifecycle, "bring_here", lambda *_: None)
    monkeypatch.setattr(node.driver, "inspect", lambda _: state)
    monkeypatch.setattr(node.driver, "destroy", lambda _: seen.append(True))
    monkeypatch.setattr(node.driver, "create", create_again)
    claimed = claim(made)
    assert claimed.attempts == 2
    with pytest.raises(StillStarting):
        lifecycle.boot(node, claimed, assignments.get_assigned(node.settings, made))
    assert seen == destroyed
