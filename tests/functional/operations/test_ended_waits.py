"""Which wakes of a sandbox that runs are ended for the sake of what is asked for next."""
import pytest

from models.database import connection
from models.operations import Operation
from models.states import OperationKind, OperationState
from services.errors import Unavailable
from services.operations import claims
from services.sandboxes import lifecycle
from tests.rows.operations import boot, caller, claim, row


@pytest.fixture
def waking(deps):
    """The id of a running sandbox that is woken to open a port."""
    sandbox_id = boot(deps)
    with pytest.raises(Unavailable):
        lifecycle.wake(deps, caller("alice"), sandbox_id, ports=(3000,))
    return sandbox_id


def hibernate(deps, sandbox_id):
    """Ask for it; no worker carries it out."""
    with pytest.raises(Unavailable):
        lifecycle.hibernate(deps, caller("alice"), sandbox_id)


def wake_of(sandbox_id):
    with connection():
        return Operation.get((Operation.sandbox_id == sandbox_id)
                             & (Operation.kind == OperationKind.WAKE))


def test_one_that_waits_for_the_service(deps, waking):
    with connection():
        claims.park(claim(waking), 60, "port 3000")
    hibernate(deps, waking)
    assert wake_of(waking).state == OperationState.SUCCEEDED
    assert row(waking).task == OperationKind.HIBERNATE


def test_none_that_has_yet_to_open_its_ports(deps, waking):
    hibernate(deps, waking)
    assert (wake_of(waking).state, row(waking).task) == ("pending", "wake")
    with connection():
        claims.put_back(claim(waking), 60, "the rules were not written")
    hibernate(deps, waking)
    assert (wake_of(waking).state, row(waking).task) == ("pending", "wake")
