"""A guest that halts past its init system, which a machine without ACPI cannot tell anybody."""
import time

import pytest

from nodeworker.hypervisor.driver import VmState


@pytest.mark.parametrize("line", ["systemctl poweroff -ff", "systemctl halt -ff"])
def test_a_machine_halted_for_good_is_ended_and_boots_from_its_disk(real, line):
    spec, bystander = real.create(), real.create()
    real.shell(spec, "echo kept | tee /root/note > /tmp/note; sync")
    assert not real.driver.end_if_halted(spec.sandbox_id)
    real.agent(spec).exec(shell=line, detached=True)
    deadline = time.monotonic() + 60
    while not real.driver.end_if_halted(spec.sandbox_id):
        assert not real.driver.end_if_halted(bystander.sandbox_id), "idle is not halted"
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert real.driver.inspect(spec.sandbox_id) is VmState.DISK_ONLY
    assert not real.driver.end_if_halted(spec.sandbox_id)
    assert real.driver.wake(spec).cold
    up = real.agent(spec).exec(shell="systemctl is-system-running --wait", timeout_ms=240_000)
    assert up.stdout == b"running\n"
    assert real.shell(spec, "cat /root/note /tmp/note") == "kept\nkept\n"
    assert real.agent(bystander).ping().adopted == bystander.sandbox_id
