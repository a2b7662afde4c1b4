"""A create of a shape that is not baked: it boots cold, says so in the operation, and the template
follows."""

import re

import pytest

from bin import status
from tests.stack.database import query
from tests.stack.waiting import becomes, until

NOTE = "cold boot: the warm image of this shape was not baked on this node yet"


def bake_state(stack, shape):
    found = query(stack, "SELECT state FROM warm_images WHERE (vcpus, mem_mb) = (%s, %s)", *shape)
    return found[0][0] if found else None


@pytest.fixture
def unbaked(sim_stack):
    """Makes sure that a shape has no template, as after a new image."""

    def remove(vcpus, mem_mb):
        becomes(
            lambda: query(
                sim_stack, "SELECT count(*) FROM warm_images"
                " WHERE state IN ('queued', 'baking') AND node_id = %s",
                sim_stack.settings.node_id),
            [(0, )])
        (sim_stack.settings.node_dir / "templates" / f"{vcpus}x{mem_mb}").unlink(missing_ok=True)
        return vcpus, mem_mb

    return remove


def create(stack, persona, size):
    """Id of a sandbox that runs, the note of its boot and the one on its row; it is removed
    again."""
    sandbox_id = persona.create(size=size)["id"]
    found = query(
        stack,
        "SELECT o.note, s.operator_note FROM operations o JOIN sandboxes s ON s.id = o.sandbox_id"
        " WHERE s.id = %s AND o.kind = 'boot'", sandbox_id)
    persona.delete(f"/v1/sandboxes/{sandbox_id}")
    return found[0]


def test_the_operation_says_so_and_the_next_create_restores(sim_stack, alice, unbaked, capsys):
    shape = unbaked(2, 2048)
    assert create(sim_stack, alice, "medium") == (NOTE, NOTE)
    becomes(lambda: bake_state(sim_stack, shape), "baked")
    assert create(sim_stack, alice, "medium") == (None, None)

    def shown():
        capsys.readouterr()
        return status.show(sim_stack)

    until(shown)
    printed = capsys.readouterr().out
    assert re.search("\n  medium +2 vCPU +2048 MB +baked", printed)
    assert re.search("node-bulk +RUNNING", printed)


def test_a_worker_killed_while_it_bakes_costs_only_time(sim_stack, alice, unbaked, fault):
    shape = unbaked(4, 4096)
    fault("bake.spawned", "kill")
    assert create(sim_stack, alice, "large")[0] == NOTE
    becomes(lambda: bake_state(sim_stack, shape), "baked")
    assert query(sim_stack,
                 "SELECT attempts FROM warm_images WHERE (vcpus, mem_mb) = (4, 4096)") == [(0, )]
    assert fault.reached(), "the worker was killed"
    assert create(sim_stack, alice, "large") == (None, None)


@pytest.mark.slow
def test_uploads_pass_a_bake_and_a_second_bake_waits_for_it(sim_stack, alice, unbaked, fault):
    medium, large = unbaked(2, 2048), unbaked(4, 4096)
    fault("bake.saved", "sleep:6")
    assert create(sim_stack, alice, "medium")[0] == NOTE
    becomes(lambda: bake_state(sim_stack, medium), "baking")
    assert any("saving for" in line for line in status.list_machines(sim_stack.settings))
    assert create(sim_stack, alice, "large")[0] == NOTE
    source = alice.create()["id"]
    taken = alice.post(f"/v1/sandboxes/{source}/snapshot").json()["id"]
    becomes(
        lambda: query(sim_stack, "SELECT uploaded_to_store FROM snapshots WHERE id = %s", taken),
        [(True, )])
    assert (bake_state(sim_stack, medium), bake_state(sim_stack, large)) == ("baking", "queued")
    becomes(lambda: bake_state(sim_stack, large), "baked", timeout_s=40)
    assert bake_state(sim_stack, medium) == "baked"
    alice.delete(f"/v1/sandboxes/{source}")


def test_a_bake_that_fails_harms_no_create(sim_stack, alice, unbaked, fault):
    shape = unbaked(2, 2048)
    fault("bake.saved", "raise")
    assert create(sim_stack, alice, "medium")[0] == NOTE
    becomes(lambda: bake_state(sim_stack, shape), "failed")
    assert create(sim_stack, alice, "medium")[0] == NOTE
    line = next(line for line in status.list_machines(sim_stack.settings)
                if line.strip().startswith("medium"))
    assert "failed  InjectedFault" in line and "tried again in" in line
    query(sim_stack, "UPDATE warm_images SET announce_at = now()")
    becomes(lambda: bake_state(sim_stack, shape), "baked")
