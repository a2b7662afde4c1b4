"""The idle timeout that is extended while an operation is under way counts at its end."""
from datetime import timedelta

import pytest

from nodeworker.handlers import lifecycle as handlers
from services.sandboxes import lifecycle
from tests.rows.operations import caller, row, run


@pytest.mark.parametrize("timeout", [3600, 30])
def test_while_it_boots(node, made, monkeypatch, timeout):
    bring_up = handlers.bring_up

    def extend_first(*given):
        lifecycle.extend(caller("alice"), made, timeout)
        return bring_up(*given)

    monkeypatch.setattr(handlers, "bring_up", extend_first)
    run(node, made)
    seen = row(made)
    assert (seen.status, seen.idle_timeout_s) == ("running", timeout)
    assert seen.idle_at - seen.last_active_at == timedelta(seconds=timeout)
