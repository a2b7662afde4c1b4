"""Sweeps: what was neglected is announced again, what idles sleeps, what is overdue ends."""
from datetime import timedelta

import pytest

from models.database import connection, now
from models.operations import Operation
from models.sandboxes import Activity, Sandbox
from models.states import OperationKind, OperationState
from services.errors import Conflict, Unavailable
from services.guest_calls.activity import in_use
from services.operations import sweeps
from services.sandboxes import create, lifecycle
from services.sandboxes.idle import hibernate_idle
from services.sandboxes.outcomes import fail_overdue
from tests.rows.operations import CREATE, boot, caller, claim, row


def test_a_neglected_operation_is_announced_again(deps):
    view = create.create(deps, caller("alice"), CREATE)
    deps.queue.sent.clear()
    with connection():
        Operation.update(announce_at=now() - timedelta(seconds=1)).execute()
    assert sweeps.announce_neglected(deps) == 1
    claim(view.id, lease_s=-1)
    assert sweeps.announce_neglected(deps) == 1
    assert [payload["op_seq"] for _, _, payload in deps.queue.sent] == [1, 1]


def test_idle_sweep_spares_what_is_in_use(deps):
    idle, busy, fresh = boot(deps), boot(deps), boot(deps)
    with connection():
        Sandbox.update(idle_at=now() - timedelta(seconds=1)).where(
            Sandbox.id.in_([idle, busy])
        ).execute()
    with in_use(row(busy), for_s=60, what="exec"):
        with connection():
            Sandbox.update(idle_at=now() - timedelta(seconds=1)).where(Sandbox.id == busy).execute()
        assert hibernate_idle(deps) == 1
    assert [row(one).task for one in (idle, busy, fresh)] == ["hibernate", None, None]
    assert row(busy).idle_at > now(), "the end of a call restarts the clock"
    with pytest.raises(Conflict, match="hibernating"):
        with in_use(row(idle), for_s=60, what="exec"):
            pass


def test_an_activity_of_a_dead_process_does_not_keep_a_sandbox_awake_for_ever(deps):
    sandbox_id = boot(deps)
    with connection():
        Activity.create(sandbox_id=sandbox_id, expires_at=now() - timedelta(seconds=1))
        Sandbox.update(idle_at=now() - timedelta(seconds=1)).execute()
    assert hibernate_idle(deps) == 1


def test_an_overdue_boot_ends_as_stopped_and_a_stop_is_never_given_up(deps):
    never, stopping = create.create(deps, caller("alice"), CREATE).id, boot(deps)
    with pytest.raises(Unavailable):
        lifecycle.delete(deps, caller("alice"), stopping)
    with connection():
        Operation.update(deadline_at=now() - timedelta(seconds=1)).execute()
    assert fail_overdue(deps) == 1
    assert row(never).status == "stopped" and "did not finish" in row(never).error
    assert row(stopping).task == OperationKind.STOP
    with connection():
        assert Operation.get(Operation.sandbox_id == never).state == OperationState.FAILED
