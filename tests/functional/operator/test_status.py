"""`make status` tells what does not work, whether or not its process runs."""
import os
import signal
from pathlib import Path

import pytest
import redis

from bin.console import Advice
from bin.stack import health
from bin.stack.running import Stack
from bin.stack.site import Site
from bin.status import show
from tests.stack.waiting import until


def faults(stack):
    return health.list_faults(stack.site, stack.processes)


def line_of(capsys, name):
    return next(line for line in capsys.readouterr().out.splitlines() if line.startswith(name))


def test_a_stack_that_works_has_no_fault(sim_stack, capsys):
    def shown():
        capsys.readouterr()
        return show(sim_stack)

    until(shown)
    assert "BUT" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["api", "control", "edge", "node-ops", "shell"])
def test_a_process_that_runs_and_does_not_answer_is_told(sim_stack, capsys, name):
    pid = sim_stack.supervisor.pid(name)
    family = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    for each in family:
        os.kill(each, signal.SIGSTOP)
    try:
        assert not show(sim_stack)
        shown = line_of(capsys, name)
        assert "RUNNING" in shown and "BUT does not answer" in shown
    finally:
        for each in family:
            os.kill(each, signal.SIGCONT)
    until(lambda: not faults(sim_stack))


@pytest.mark.slow
def test_a_node_worker_whose_start_fails_again_and_again_is_told(sim_stack, capsys):
    """Its process is there most of the time; only its start never ends."""
    broken = {**sim_stack.site.values, "SVC_LIST_RATES": "small=1,enormous=2"}
    other = Stack(Site(sim_stack.site.data_dir, broken), durable=False)
    try:
        other.supervisor.launch()
        other.restart("node-ops")
        until(lambda: "SVC_LIST_RATES" in sim_stack.logs("node-ops"))
        assert not show(sim_stack)
        assert "BUT its start is not over" in line_of(capsys, "node-ops")
    finally:
        sim_stack.supervisor.launch()
        sim_stack.restart("node-ops")
    until(lambda: not faults(sim_stack))


@pytest.mark.slow
def test_a_stack_with_a_process_that_ends_again_and_again_does_not_count_as_up(sim_stack):
    """One that nobody asks anything."""
    other = Stack(sim_stack.site, durable=False, processes=sim_stack.processes)
    other.supervisor.programs["beat"] = "exec false"
    try:
        other.supervisor.launch()
        other.restart("beat")
        with pytest.raises(Advice, match=r"runs and stays(?s:.*)--- beat \((BACKOFF|STARTING)\)"):
            other.wait_healthy(timeout_s=5)
    finally:
        sim_stack.supervisor.launch()
        sim_stack.restart("beat")
    sim_stack.kill("relay")
    sim_stack.wait_healthy(timeout_s=10)
    assert sim_stack.supervisor.state("relay") == "RUNNING"


def listeners(stack):
    """How many subscriptions there are, those of the workers for questions among them."""
    with redis.Redis.from_url(stack.site.values["SVC_REDIS_URL"]) as link:
        try:
            return sum(int(client["psub"]) for client in link.client_list())
        except redis.RedisError:
            return None  # it is away


def test_workers_that_are_back_after_an_outage_of_redis_are_not_told_as_silent(sim_stack):
    """The first question after the outage went out over a connection that had died with Redis."""
    until(lambda: not faults(sim_stack))
    before = listeners(sim_stack)
    sim_stack.kill("redis")
    until(lambda: listeners(sim_stack) == before)
    assert health.silent_workers(sim_stack.site, sim_stack.settings.node_id,
                                 sim_stack.processes) == set()
