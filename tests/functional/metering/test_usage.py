"""GET /v1/sandboxes/{id}/usage on a whole stack with the simulated hypervisor: sampled by ticks and
at every end."""
import os
import signal
import time

import pytest

from nodeworker.hypervisor.simulated.control import SimulatorControl
from tests.stack.waiting import until


def usage(persona, sandbox_id):
    answer = persona.get(f"/v1/sandboxes/{sandbox_id}/usage")
    assert answer.status_code == 200, answer.text
    return answer.json()


def becomes(persona, sandbox_id, right, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not right(found := usage(persona, sandbox_id)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def burn(persona, sandbox_id, seconds):
    assert persona.exec(sandbox_id, "burn", str(seconds))["exitCode"] == 0


def test_a_running_sandbox_is_sampled_and_the_list_agrees(alice, sandbox):
    burn(alice, sandbox, 7)
    first = becomes(alice, sandbox, lambda seen: seen["cpuMs"] == 7000 and seen["wallClockMs"] > 0)
    later = becomes(alice, sandbox, lambda seen: seen["sampledAt"] > first["sampledAt"])
    assert later["wallClockMs"] > first["wallClockMs"] and later["usageCost"] is None
    envelope = alice.get("/v1/sandboxes?limit=500").json()
    entry = next(entry for entry in envelope["sandboxes"] if entry["id"] == sandbox)
    assert entry["usageSeconds"] >= later["usageSeconds"] > 0 and entry["usageCost"] is None
    assert entry["computeCost"] == pytest.approx(entry["usageSeconds"] * 0.066 / 3600, abs=1e-6)
    assert envelope["totalUsageSeconds"] >= entry["usageSeconds"]
    assert envelope["totalComputeCost"] >= entry["computeCost"] > 0


def test_a_run_is_read_before_it_ends_and_the_next_adds_to_it(sim_stack, alice, sandbox):
    for total in (3000, 6000, 9000):
        burn(alice, sandbox, 3)
        assert alice.post(f"/v1/sandboxes/{sandbox}/hibernate").json()["status"] == "hibernated"
        asleep = usage(alice, sandbox)
        assert asleep["cpuMs"] == total
        assert alice.post(f"/v1/sandboxes/{sandbox}/wake").json()["status"] == "running"
    burn(alice, sandbox, 3)
    before = alice.get("/v1/sandboxes").json()["totalUsageSeconds"]
    assert alice.delete(f"/v1/sandboxes/{sandbox}").json()["status"] == "stopped"
    stopped = usage(alice, sandbox)
    assert stopped["cpuMs"] == 12_000 and stopped["wallClockMs"] >= asleep["wallClockMs"]
    assert alice.get(
        "/v1/sandboxes").json()["totalUsageSeconds"] >= before >= stopped["usageSeconds"]


def test_while_it_sleeps_nothing_is_counted(alice, sandbox):
    alice.post(f"/v1/sandboxes/{sandbox}/hibernate").raise_for_status()
    asleep = usage(alice, sandbox)
    time.sleep(1.5)  # three ticks
    assert usage(alice, sandbox) == asleep


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["node-ctl", "node-ops", "control", "beat"])
def test_killing_a_process_loses_nothing(sim_stack, alice, sandbox, worker):
    burn(alice, sandbox, 5)
    before = usage(alice, sandbox)
    sim_stack.kill(worker)
    burn(alice, sandbox, 5)
    after = becomes(alice, sandbox, lambda seen: seen["cpuMs"] == 10_000)
    assert after["wallClockMs"] >= before["wallClockMs"]
    becomes(alice, sandbox, lambda seen: seen["wallClockMs"] > after["wallClockMs"])


@pytest.mark.slow
def test_machines_that_die_keep_what_was_sampled_and_go_on_from_there(sim_stack, alice, sandbox):
    burn(alice, sandbox, 5)
    before = becomes(alice, sandbox, lambda seen: seen["cpuMs"] == 5000)
    os.kill(SimulatorControl(sim_stack.settings.node_dir / "simulator").pid(), signal.SIGKILL)
    alice.wait_for(sandbox, "hibernated")
    dead = usage(alice, sandbox)
    assert dead["cpuMs"] == 5000 and dead["wallClockMs"] >= before["wallClockMs"]
    alice.post(f"/v1/sandboxes/{sandbox}/wake").raise_for_status()
    burn(alice, sandbox, 2)
    again = becomes(alice, sandbox, lambda seen: seen["cpuMs"] == 7000)
    assert again["wallClockMs"] >= dead["wallClockMs"]


def insist(persona, path, timeout_s=60):
    """Ask again as a client with retries does."""
    deadline = time.monotonic() + timeout_s
    while not (answer := persona.post(path)).is_success:
        assert answer.status_code in (409, 503) and time.monotonic() < deadline, answer.text
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("action", "point"), [("hibernate", "runner.claimed"),
                                               ("hibernate", "hibernate.begun"),
                                               ("hibernate", "hibernate.ended"),
                                               ("hibernate", "runner.handled"),
                                               ("hibernate", "runner.finished"),
                                               ("wake", "wake.spawned"), ("wake", "wake.adopted"),
                                               ("wake", "runner.handled"),
                                               ("wake", "runner.finished")])
def test_everything_is_counted_once_when_a_worker_dies_in_the_middle(
    sim_stack, alice, sandbox, fault, action, point
):
    path = f"/v1/sandboxes/{sandbox}"
    burn(alice, sandbox, 3)
    if action == "wake":
        insist(alice, f"{path}/hibernate")
    fault(point)
    insist(alice, f"{path}/{action}")
    # The last point comes after the answer.
    until(fault.reached)
    after = becomes(alice, sandbox, lambda seen: seen["cpuMs"] >= 3000)
    insist(alice, f"{path}/wake")
    burn(alice, sandbox, 2)
    insist(alice, f"{path}/hibernate")
    asleep = usage(alice, sandbox)
    assert (after["cpuMs"], asleep["cpuMs"]) == (3000, 5000)
    assert asleep["wallClockMs"] >= after["wallClockMs"]


@pytest.mark.slow
def test_without_redis_usage_waits_and_is_not_lost(sim_stack, alice, sandbox):
    becomes(alice, sandbox, lambda seen: seen["wallClockMs"] > 0)
    sim_stack.stop("redis")
    try:
        began = time.monotonic()
        burn(alice, sandbox, 4)
        before = usage(alice, sandbox)
        while time.monotonic() - began < 2:
            time.sleep(0.1)
        away_ms = (time.monotonic() - began) * 1000
    finally:
        sim_stack.start("redis")
    after = becomes(alice, sandbox, lambda seen: seen["cpuMs"] == 4000)
    assert after["wallClockMs"] - before["wallClockMs"] > away_ms / 2
