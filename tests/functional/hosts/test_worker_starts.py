"""A node worker whose start fails exits with the reason, and works as soon as the reason is
gone.

Of the lanes the one that has most to do at its start and one of the others are tried: these start
the same way.
"""
import pytest

from bin.stack import health
from tests.stack.fault_points import fault_point
from tests.stack.waiting import until


def exits(stack, name):
    log = (stack.site.data_dir / "log" / "supervisord.log").read_text()
    return log.count(f"exited: {name} (exit status 1; not expected)")


@pytest.mark.parametrize("lane", ["ctl", "ops"])
@pytest.mark.slow
def test_a_worker_whose_start_fails_exits_says_why_and_comes_back(sim_stack, lane):
    name = f"node-{lane}"
    sim_stack.stop(name)
    before = exits(sim_stack, name)
    with fault_point(sim_stack) as point:
        point("start.begun", "raise")
        sim_stack.start(name)
        until(lambda: exits(sim_stack, name) == before + 1)
        assert (
            f"the start of lane {lane} failed, so this worker exits: InjectedFault"
            in sim_stack.logs(name, 300)
        )
    node_id = sim_stack.settings.node_id
    until(lambda: name not in health.list_faults(sim_stack.site, [name]))
    until(lambda: health.node_reports(sim_stack.site, node_id))
    assert exits(sim_stack, name) == before + 1


def test_a_create_works_after_all_that(sim_stack, alice):
    sandbox_id = alice.create()["id"]
    assert alice.delete(f"/v1/sandboxes/{sandbox_id}").json()["status"] == "stopped"
