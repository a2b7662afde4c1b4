"""A node that is drained is closed until its workers start again; what an operator has decided
about it holds before, meanwhile and afterwards."""
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from bin.stack.site import ROOT
from tests.stack.database import query
from tests.stack.operator import told_operator
from tests.stack.processes import second_node
from tests.stack.waiting import until

DRAIN = ["python", "-m", "nodeworker.commands.drain"]
OTHER = "node-d"


@pytest.fixture(scope="module")
def node(sim_stack):
    """A second node of the stack."""
    with second_node(sim_stack, OTHER, ("ctl", "ops")) as made:
        yield made


@pytest.fixture
def svc_admin(node):
    """Runs a command of the operator's; returns what it printed."""
    return partial(told_operator, node.env)


@pytest.fixture
def there(alice, node):
    """Id of a sandbox that runs on the second node."""
    made = create(alice)
    assert made.status_code == 201, made.text
    sandbox = alice.wait_for(made.json()["id"], "running")["id"]
    yield sandbox
    alice.delete(f"/v1/sandboxes/{sandbox}")


def create(alice):
    return alice.post("/v1/sandboxes", json={}, headers=alice.key_headers | {"X-Svc-Node": OTHER})


def start_operations(node):
    """Its lane for sandboxes works again, and says so."""
    node.start("node-ops")
    until(lambda: query(node, "SELECT lanes ? 'ops' FROM nodes WHERE id = %s", OTHER) == [(True,)])


def restart(node):
    """Its workers start again, and it reports."""
    started = "SELECT started_at FROM nodes WHERE id = %s"
    before = query(node, started, OTHER)
    node.restart("node-ctl")
    until(lambda: query(node, started, OTHER) != before)


def is_marked(node):
    return query(node, "SELECT draining_until > now() FROM nodes WHERE id = %s", OTHER) == [(True,)]


def state(svc_admin):
    return next(line for line in svc_admin("node-list").splitlines() if line.startswith(OTHER))


def test_a_drained_node_wakes_nothing_until_its_workers_start_again(node, there, alice, svc_admin):
    node.run(" ".join(DRAIN))
    assert alice.get(f"/v1/sandboxes/{there}").json()["status"] == "hibernated"
    assert "open, draining until" in state(svc_admin)
    refused = [alice.post(f"/v1/sandboxes/{there}/wake"), create(alice)]
    assert [each.status_code for each in refused] == [503, 503], "its workers are to be stopped"
    restart(node)
    assert "draining" not in state(svc_admin)
    assert alice.post(f"/v1/sandboxes/{there}/wake").is_success
    alice.wait_for(there, "running")


def test_a_node_that_an_operator_has_closed_stays_closed(node, alice, svc_admin):
    svc_admin("node-close", OTHER)
    try:
        node.run(" ".join(DRAIN))
        restart(node)
        assert "closed" in state(svc_admin) and create(alice).status_code == 503
        node.run(" ".join(DRAIN))
    finally:
        svc_admin("node-open", OTHER)
    assert not is_marked(node), "who opens it ends the drain too"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_that_is_broken_off_leaves_the_node_open(node, there, signum):
    def heed_ctrl_c():
        """Who runs the tests in the background may ignore it."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    node.stop("node-ops")
    try:
        with subprocess.Popen(DRAIN, cwd=ROOT, env=node.env, preexec_fn=heed_ctrl_c) as draining:
            until(lambda: is_marked(node))
            draining.send_signal(signum)
            assert draining.wait(10) == 128 + signum
        assert not is_marked(node)
    finally:
        start_operations(node)


def test_a_drain_that_fails_leaves_the_node_open(node, there):
    node.stop("node-ops")
    try:
        assert_fails(node)
        assert not is_marked(node)
    finally:
        start_operations(node)


def test_what_is_just_being_woken_is_not_asleep(node, there, alice):
    alice.post(f"/v1/sandboxes/{there}/hibernate")
    alice.wait_for(there, "hibernated")
    node.stop("node-ops")
    with ThreadPoolExecutor(1) as beside:
        try:
            waking = beside.submit(alice.post, f"/v1/sandboxes/{there}/wake")
            task = "SELECT task FROM sandboxes WHERE id = %s"
            until(lambda: query(node, task, there) == [("wake",)])
            assert_fails(node)
        finally:
            start_operations(node)
        assert waking.result().is_success
    alice.wait_for(there, "running")


def assert_fails(node):
    failed = subprocess.run([*DRAIN, "--timeout", "1"], cwd=ROOT, env=node.env, text=True,
                            capture_output=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, "1 sandboxes are still awake\n")
