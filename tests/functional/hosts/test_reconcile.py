"""Rows and machines are compared both ways, and what differs is mended, on a whole stack with the
simulated driver."""
import json

import psycopg2
import pytest

from nodeworker.hypervisor.driver import VmState
from nodeworker.hypervisor.factory import make_driver
from tests.stack.waiting import becomes


@pytest.fixture
def host(sim_stack):
    """The driver of the stack's node, as another process sees it."""
    return make_driver(sim_stack.settings)


def rewrite(stack, statement, *values):
    """Change rows behind the service's back, as a restored backup would."""
    with psycopg2.connect(stack.settings.database_url) as link, link.cursor() as cursor:
        cursor.execute(statement, values)
    link.close()


def query(stack, statement, *values):
    with psycopg2.connect(stack.settings.database_url) as link, link.cursor() as cursor:
        cursor.execute(statement, values)
        found = cursor.fetchall()
    link.close()
    return found


@pytest.mark.slow
def test_a_machine_without_a_row_is_removed_after_the_grace_period(sim_stack, alice, host):
    sandbox_id = alice.create()["id"]
    assert host.inspect(sandbox_id) is VmState.RUNNING
    rewrite(sim_stack, "UPDATE sandboxes SET status = 'stopped' WHERE id = %s", sandbox_id)
    becomes(lambda: host.inspect(sandbox_id), None)


def test_a_machine_awake_under_a_sleeping_row_is_put_to_sleep(sim_stack, alice, host, sandbox):
    rewrite(sim_stack, "UPDATE sandboxes SET status = 'hibernated' WHERE id = %s", sandbox)
    becomes(lambda: host.inspect(sandbox), VmState.SAVED)
    assert alice.post(f"/v1/sandboxes/{sandbox}/wake").json()["status"] == "running"


def test_a_machine_asleep_under_a_running_row_makes_the_row_say_so(sim_stack, alice, host, sandbox):
    host.hibernate(sandbox)
    becomes(lambda: alice.get(f"/v1/sandboxes/{sandbox}").json()["status"], "hibernated")
    assert alice.post(f"/v1/sandboxes/{sandbox}/wake").json()["status"] == "running"


@pytest.mark.slow
def test_a_node_compares_also_while_beat_and_the_broker_are_away(sim_stack, alice, host, sandbox):
    for name in ("beat", "redis"):
        sim_stack.stop(name)
    try:
        host.hibernate(sandbox)
        becomes(lambda: alice.get(f"/v1/sandboxes/{sandbox}").json()["status"], "hibernated")
    finally:
        for name in ("redis", "beat"):
            sim_stack.start(name)
    assert alice.post(f"/v1/sandboxes/{sandbox}/wake").json()["status"] == "running"


@pytest.mark.parametrize("asleep", [False, True])
@pytest.mark.slow
def test_a_row_whose_files_are_gone_for_good_becomes_stopped_and_says_why(
        sim_stack, alice, host, asleep):
    sandbox = alice.create(ports=[8000])["id"]
    if asleep:
        alice.post(f"/v1/sandboxes/{sandbox}/hibernate")
    host.destroy(sandbox)
    becomes(lambda: alice.get(f"/v1/sandboxes/{sandbox}").json()["status"], "stopped")
    shown = alice.get(f"/v1/sandboxes/{sandbox}").json()
    assert "files are gone from its node" in shown["error"] and shown["portMap"] == {}
    told = query(sim_stack,
                 "SELECT body FROM events WHERE subject = %s AND type = 'sandbox.stopped'", sandbox)
    data, = [json.loads(body)["data"] for body, in told]
    assert (data["reason"], data["error"]) == ("files_lost", shown["error"])
    assert query(sim_stack, "SELECT kind, state, requested_by FROM operations WHERE sandbox_id = %s"
                 " ORDER BY op_seq DESC LIMIT 1", sandbox) == [("stop", "succeeded", "reconciler")]
    assert alice.delete(f"/v1/sandboxes/{sandbox}").json()["status"] == "stopped"


@pytest.mark.slow
def test_a_capture_nothing_needs_is_removed(sim_stack, alice, host, sandbox):
    taken = alice.post(f"/v1/sandboxes/{sandbox}/snapshot").json()["id"]
    assert taken in host.list_snapshots()
    rewrite(sim_stack, "UPDATE snapshots SET state = 'failed' WHERE id = %s", taken)
    becomes(lambda: taken in host.list_snapshots(), False)


@pytest.mark.slow
def test_a_capture_whose_removal_was_cut_short_is_removed_again(sim_stack, alice, sandbox):
    fork = alice.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["id"]
    alice.wait_for(fork, "running")
    [[taken]] = query(sim_stack, "SELECT snapshot_id FROM sandboxes WHERE id = %s", fork)

    def told():
        return query(sim_stack, "SELECT state FROM snapshots WHERE id = %s", taken)

    becomes(told, [("deleted",)])
    rewrite(sim_stack, "UPDATE snapshots SET state = 'ready' WHERE id = %s", taken)
    becomes(told, [("deleted",)])
    alice.delete(f"/v1/sandboxes/{fork}")


def test_transient_captures_of_forks_do_not_pile_up(sim_stack, alice, host, sandbox):
    before = host.list_snapshots()
    forks = [alice.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["id"] for _ in range(3)]
    for fork in forks:
        alice.wait_for(fork, "running")
    becomes(lambda: host.list_snapshots() - before, set())
    for fork in forks:
        alice.delete(f"/v1/sandboxes/{fork}")
