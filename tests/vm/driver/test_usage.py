"""What the host charges to a machine: by every driver, against the kernel's own books, and as its
owner is told."""
import os
import signal
import time

from nodeworker.hypervisor.qemu.rundir import RunDir

BURN = "timeout 1 sh -c 'while :; do :; done' || true"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def burn(lab, spec):
    if lab.is_real:
        lab.shell(spec, BURN)
    else:
        assert lab.agent(spec).exec(["burn", "1"]).exit_code == 0


def record_of(node_dir, sandbox_id):
    return RunDir(node_dir / "sandboxes" / sandbox_id).find_record()


def booked_ms(pid):
    """CPU time of a process by its own line in /proc, in the kernel's ticks."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // TICKS_PER_S


def test_the_counters_of_a_run_only_grow(lab):
    spec = lab.create()
    before = lab.driver.read_usage(spec.sandbox_id)
    burn(lab, spec)
    after = lab.driver.read_usage(spec.sandbox_id)
    assert after.run == before.run
    assert after.cpu_ms > before.cpu_ms and after.age_ms >= before.age_ms > -1


def test_every_process_is_a_run_of_its_own_and_none_is_counted_while_asleep(lab):
    spec = lab.create()
    burn(lab, spec)
    first = lab.driver.read_usage(spec.sandbox_id)
    lab.driver.hibernate(spec.sandbox_id)
    assert lab.driver.read_usage(spec.sandbox_id) is None
    lab.driver.wake(spec)
    second = lab.driver.read_usage(spec.sandbox_id)
    assert second.run != first.run and second.cpu_ms < first.cpu_ms
    lab.kill_machine(spec.sandbox_id)
    left = lab.driver.read_usage(spec.sandbox_id)
    assert left is None or (left.run, left.age_ms) == (second.run, 0)
    lab.driver.wake(spec)
    assert lab.driver.read_usage(spec.sandbox_id).run not in (first.run, second.run)
    lab.driver.destroy(spec.sandbox_id)
    assert lab.driver.read_usage(spec.sandbox_id) is None


def test_another_worker_reads_the_same_counters(lab):
    spec = lab.create()
    seen = lab.driver.read_usage(spec.sandbox_id)
    assert lab.in_child("read_usage", spec.sandbox_id) == 0
    again = type(lab.driver)(lab.settings).read_usage(spec.sandbox_id)
    assert again.run == seen.run and again.cpu_ms >= seen.cpu_ms


def test_cpu_time_is_what_the_kernel_booked_for_the_process(real):
    spec = real.create()
    pid = record_of(real.settings.node_dir, spec.sandbox_id).pid
    outer, first, inner = booked_ms(pid), real.driver.read_usage(spec.sandbox_id), booked_ms(pid)
    real.shell(spec, BURN)
    inner_end, second, outer_end = booked_ms(pid), real.driver.read_usage(
        spec.sandbox_id), booked_ms(pid)
    tick_ms = 2 * 1000 // TICKS_PER_S
    assert (
        inner_end - inner - tick_ms <= second.cpu_ms - first.cpu_ms <= outer_end - outer + tick_ms
    )
    assert second.cpu_ms - first.cpu_ms > 0


def test_the_guest_cannot_change_what_is_charged_to_it(real):
    spec = real.create()
    before = real.driver.read_usage(spec.sandbox_id)
    real.shell(spec,
               "date -s '2001-01-01' >/dev/null; " + BURN + "; date -s '2040-01-01' >/dev/null")
    after = real.driver.read_usage(spec.sandbox_id)
    assert after.cpu_ms > before.cpu_ms
    year_ms = 365 * 24 * 3_600_000
    assert before.age_ms < after.age_ms < before.age_ms + year_ms


def usage(persona, sandbox_id):
    answer = persona.get(f"/v1/sandboxes/{sandbox_id}/usage")
    assert answer.status_code == 200, answer.text
    return answer.json()


def seen_until(persona, sandbox_id, enough, timeout_s=60):
    """Poll usage, which never goes back, until `enough` of it is there."""
    deadline, last = time.monotonic() + timeout_s, usage(persona, sandbox_id)
    while not enough(last):
        assert time.monotonic() < deadline, last
        time.sleep(0.1)
        found = usage(persona, sandbox_id)
        assert found["cpuMs"] >= last["cpuMs"] and found["wallClockMs"] >= last["wallClockMs"], (
            last, found)
        last = found
    return last


def act(persona, sandbox_id, action):
    answer = persona.post(f"/v1/sandboxes/{sandbox_id}/{action}")
    assert answer.status_code == 200, answer.text


def work(persona, sandbox_id, pid):
    """Have the guest burn CPU; what the kernel had booked for its process before and after."""
    before = booked_ms(pid)
    persona.post(f"/v1/sandboxes/{sandbox_id}/exec", json={"cmd": BURN}).raise_for_status()
    return booked_ms(pid) - before


def test_usage_survives_sleep_wake_and_the_death_of_workers_and_machines(vm_stack, vm_alice):
    began = time.monotonic()
    sandbox, node_dir = vm_alice.create()["id"], vm_stack.settings.node_dir
    first = work(vm_alice, sandbox, record_of(node_dir, sandbox).pid)
    seen_until(vm_alice, sandbox, lambda seen: seen["cpuMs"] >= first)

    act(vm_alice, sandbox, "hibernate")
    time.sleep(1)  # what a tick had read before is written
    asleep = usage(vm_alice, sandbox)
    time.sleep(2.5)  # two ticks, neither of which may count anything
    assert usage(vm_alice, sandbox) == asleep
    act(vm_alice, sandbox, "wake")
    pid = record_of(node_dir, sandbox).pid
    for worker in ("node-ctl", "node-ops"):
        vm_stack.kill(worker)
    second = work(vm_alice, sandbox, pid)
    awake = seen_until(vm_alice, sandbox, lambda seen: seen["cpuMs"] >= asleep["cpuMs"] + second)
    assert awake["wallClockMs"] > asleep["wallClockMs"]

    third = work(vm_alice, sandbox, pid)
    os.kill(pid, signal.SIGKILL)
    vm_alice.wait_for(sandbox, "hibernated")
    left = usage(vm_alice, sandbox)
    assert left["cpuMs"] >= asleep["cpuMs"] + second + third, "what it used until its last moment"
    assert vm_alice.delete(f"/v1/sandboxes/{sandbox}").status_code == 200
    assert usage(vm_alice, sandbox) == left
    passed_ms = (time.monotonic() - began) * 1000
    assert 0 < left["wallClockMs"] <= passed_ms, "never more than the time that has passed"
    assert left["cpuMs"] <= 1.5 * passed_ms, "never more than its control group lets it have"
