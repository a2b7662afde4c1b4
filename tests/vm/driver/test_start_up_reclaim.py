"""What the start of a node worker removes, and what it must leave to those at work, with every
driver."""
import threading
import time

from nodeworker.hypervisor.driver import VmState


def test_a_create_that_finishes_while_reclaim_looks_at_it_stays(lab, tmp_path, monkeypatch):
    path = tmp_path / "fault"
    path.write_text("reclaim.half_made_seen sleep:3")
    monkeypatch.setenv("SVC_FAULT_FILE", str(path))
    for _ in range(20):  # a simulated create may be done before reclaim has looked
        spec = lab.spec()
        creating = threading.Thread(target=lab.driver.create, args=(spec,))
        creating.start()
        while lab.driver.inspect(spec.sandbox_id) is None:
            time.sleep(0.0001)
        lab.driver.reclaim()
        creating.join()
        if path.with_name("fault.done").exists():
            break
    assert path.with_name("fault.done").exists(), "every create was done before reclaim looked"
    assert lab.driver.inspect(spec.sandbox_id) is VmState.RUNNING
    assert lab.agent(spec).ping().adopted == spec.sandbox_id


def test_ports_of_a_machine_that_takes_a_slot_meanwhile_are_not_taken_for_stale_ones(
        real, tmp_path, monkeypatch):
    network = real.driver.host.network
    network.slots.fill()
    next_slot = network.slots.slot(min(network.slots.ready()))
    network.forwards.add(next_slot.address, {real.settings.host_ports[1]: 80})
    path = tmp_path / "fault"
    path.write_text("reclaim.stale_forward_seen sleep:5")
    monkeypatch.setenv("SVC_FAULT_FILE", str(path))
    reclaiming = threading.Thread(target=real.driver.reclaim)
    reclaiming.start()
    while not path.with_name("fault.done").exists():
        time.sleep(0.001)
    spec = real.create()
    record = real.driver.host.rundir(spec.sandbox_id).find_record()
    assert network.slots.slot(record.slot) == next_slot, "the slot was to be the next one"
    reclaiming.join()
    assert real.agent(spec).ping().adopted == spec.sandbox_id
    assert network.forwards.current()[spec.agent_port][0] == next_slot.address
