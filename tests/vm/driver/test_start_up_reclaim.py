"""What the start of a node worker removes, and what it must leave to those at work, with every
driver."""
import threading
import time

from nodeworker.hypervisor.driver import VmState


def test_a_create_that_finishes_while_reclaim_looks_at_it_stays(lab, tmp_path, monkeypatch):
    spec, path = lab.spec(), tmp_path / "fault"
    path.write_text("reclaim.half_made_seen sleep:3")
    monkeypatch.setenv("SVC_FAULT_FILE", str(path))
    creating = threading.Thread(target=lab.driver.create, args=(spec,))
    creating.start()
    while lab.driver.inspect(spec.sandbox_id) is None:
        time.sleep(0.001)
    lab.driver.reclaim()
    creating.join()
    assert path.with_name("fault.done").exists(), "the create was done before reclaim looked"
    assert lab.driver.inspect(spec.sandbox_id) is VmState.RUNNING
    assert lab.agent(spec).ping().adopted == spec.sandbox_id
