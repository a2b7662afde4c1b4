"""An operation that waits for its guest is looked at again from its beginning; what it has waited
for already is not waited for, nor undone, again."""
import json
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import pytest

from bin.stack.free_ports import free_port
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentTimeout
from guest.presets import SLUGS
from models.database import connection
from models.operations import Operation
from models.sandboxes import Sandbox
from models.states import PresetState, SandboxStatus
from nodeworker.handlers import lifecycle
from nodeworker.handlers.start_service import SERVICE
from nodeworker.hypervisor.driver import MachineSpec, Shape, StillStarting, VmState
from nodeworker.not_yet import NotYet
from services.errors import Unavailable
from services.hosts import assignments
from services.sandboxes import lifecycle as lifecycle_rules
from services.templates.presets import PRESETS
from tests.rows.operations import caller, claim, row, run

MUTE = {slug: {"state": "ready", "version": "1.0.0", "reason": "", "mute": slug == "lfg"}
        for slug in SLUGS}


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


@pytest.fixture
def lfg(node, made):
    """The id of a sandbox that is to boot with a web UI which never listens."""
    (node.settings.node_dir / "presets.json").write_text(json.dumps({"presets": MUTE}))
    service = PRESETS["lfg"].service
    with connection():
        Sandbox.update(preset="lfg", start_command=service.start_command,
                       readiness_port=service.port).where(Sandbox.id == made).execute()
    yield made
    node.driver.destroy(made)


def let_pass(seconds):
    """As if they had gone by since what is parked was."""
    past = timedelta(seconds=seconds)
    with connection():
        Operation.update(due_at=Operation.due_at - past, wait_since=Operation.wait_since - past
                         ).execute()


def test_a_service_is_waited_for_as_long_in_a_guest_that_often_answers_too_late(
        node, lfg):
    """Each time that it does its preset is waited for instead; nothing is started anew for that."""
    looks, detached = [], []

    class Agent(AgentClient):
        def exec(self, argv=None, **options):
            if options.get("detached"):
                detached.append(argv[0])
            elif argv[0] == "flock":
                looks.append(argv)
                if len(looks) % 2 == 0:
                    raise AgentTimeout("too late")
            return super().exec(argv, **options)

    node = replace(node, agent=lambda one: Agent(node.settings.node_address, one.agent_port,
                                                 one.agent_token))
    while row(lfg).task and len(looks) < 20:
        run(node, lfg)
        let_pass(40)
    seen = row(lfg)
    assert (seen.status, seen.task, seen.preset_state) == ("running", None, PresetState.FAILED)
    assert "8766" in seen.error and detached == ["python3", "/bin/bash"]


def test_a_preset_whose_start_was_lost_is_started_again(node, made):
    starts = []

    class Agent(AgentClient):
        def exec(self, argv=None, **options):
            if options.get("detached"):
                starts.append(argv)
                if len(starts) == 1:
                    raise AgentTimeout("too late")
            return super().exec(argv, **options)

    node = replace(node, agent=lambda one: Agent(node.settings.node_address, one.agent_port,
                                                 one.agent_token))
    with connection():
        Sandbox.update(preset="codex").where(Sandbox.id == made).execute()
    for _ in range(5):
        run(node, made)
        let_pass(1)
        if (seen := row(made)).task is None:
            break
    assert (seen.status, seen.preset_state, len(starts)) == ("running", PresetState.READY, 2)
    node.driver.destroy(made)


@pytest.fixture
def waking(deps, asleep):
    """One that is to wake."""
    with pytest.raises(Unavailable):
        lifecycle_rules.wake(deps, caller("alice"), asleep)
    return asleep


@pytest.mark.parametrize(("which", "status"), [("made", "provisioning"), ("waking", "running")])
def test_what_is_waited_for_outlives_a_database_that_is_away(
        node, away, monkeypatch, request, which, status):
    """Else the next run prepares the machine anew, or does not know how it came up."""
    sandbox_id = request.getfixturevalue(which)
    with ExitStack() as outage:
        def bring_up(*_):
            outage.enter_context(away())
            monkeypatch.setattr(time, "sleep", lambda _: outage.close())
            raise NotYet(SERVICE)

        monkeypatch.setattr(lifecycle, "bring_up", bring_up)
        run(node, sandbox_id)
    seen = row(sandbox_id)
    with connection():
        parked = Operation.get(Operation.numbered(sandbox_id, seen.op_seq))
    assert (parked.waits_for, seen.status) == (SERVICE, status)
    assert seen.vm_ip
    node.driver.destroy(sandbox_id)
