"""The idle timeout that is extended while an operation is under way counts at its end."""
from dataclasses import replace
from datetime import timedelta

import pytest

from nodeworker.handlers import lifecycle as handlers
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.wiring import NodeDeps
from services.sandboxes import create, lifecycle
from tests.rows.operations import CREATE, caller, row, run


@pytest.mark.parametrize("timeout", [3600, 30])
def test_while_it_boots(deps, tmp_path, monkeypatch, timeout):
    settings = replace(deps.settings, node_id="n1", node_dir=tmp_path)
    node = NodeDeps(settings, SimulatedDriver(settings), deps.queue, None)
    alice, bring_up = caller("alice"), handlers.bring_up
    made = create.create(deps, alice, CREATE).id

    def extend_first(*given):
        lifecycle.extend(alice, made, timeout)
        return bring_up(*given)

    monkeypatch.setattr(handlers, "bring_up", extend_first)
    run(node, made)
    seen = row(made)
    assert (seen.status, seen.idle_timeout_s) == ("running", timeout)
    assert seen.idle_at - seen.last_active_at == timedelta(seconds=timeout)
