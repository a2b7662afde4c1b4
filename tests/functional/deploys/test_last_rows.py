"""A node that stops a sandbox which replicates waits for its last rows, but not for ever."""
import pytest

from models.database import connection, database
from services.deploys.served import replica_keys, stop_old_runtimes
from tests.stack.database import query
from tests.stack.waiting import becomes, until

WAITS = "SELECT waits_for FROM operations WHERE sandbox_id = %s AND kind = 'stop'"
LONG_AGO = "UPDATE operations SET wait_since = now() - interval '20 seconds'" \
           " WHERE sandbox_id = %s AND kind = 'stop'"


def waited_long(stack, sandbox_id):
    query(stack, LONG_AGO, sandbox_id)


def lost_its_key(stack, sandbox_id):
    replica_keys.revoke(sandbox_id)


@pytest.mark.slow
@pytest.mark.parametrize("event", [waited_long, lost_its_key])
def test_a_guest_that_does_not_store_them_is_stopped_in_the_end(
        sim_stack, stack_rows, alice, hostile, guest, event):
    replica_keys.issue(sim_stack.settings, hostile, "apps/last/v1-1/db/")
    with connection(), database.atomic():
        stop_old_runtimes.retire(hostile, 0)
    becomes(lambda: query(sim_stack, WAITS, hostile), [("its database to reach the store",)])
    asked = guest.asked
    until(lambda: guest.asked > asked)
    assert alice.get(f"/v1/sandboxes/{hostile}").json()["status"] == "running"
    event(sim_stack, hostile)
    becomes(lambda: alice.get(f"/v1/sandboxes/{hostile}").json()["status"], "stopped")
    becomes(lambda: replica_keys.has_key(hostile), False)
