"""What it costs a guest to start a program again, where its code is translated."""
import os

import pytest

from nodeworker.hypervisor.qemu.host import qemu_version
from nodeworker.hypervisor.qemu.process.accelerator import KVM, keeps_translations

SWITCH = "/proc/sys/kernel/randomize_va_space"
STARTS = "for number in 1 2 3 4; do python3 -c 'import json'; done"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(real, spec, line):
    """CPU time of the machine's process while its guest runs a line of bash."""
    def used():
        with open(f"/proc/{real.driver.host.rundir(spec.sandbox_id).find_record().pid}/stat",
                  encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    before = used()
    real.shell(spec, line)
    return used() - before


def test_a_program_that_starts_again_is_not_translated_again(real):
    spec = real.create()
    shipped = real.shell(spec, f"cat {SWITCH}").strip()
    if real.driver.host.accelerator == KVM:
        assert shipped == "2"
        pytest.skip("nothing is translated here")
    used = {}
    for addresses in ("0", "2"):
        real.shell(spec, f"echo {addresses} > {SWITCH}")  # a user may
        cpu_s(real, spec, STARTS)
        used[addresses] = cpu_s(real, spec, STARTS)
    if keeps_translations(qemu_version()):
        assert shipped == "2" and used["2"] < 1.3 * used["0"]
    else:
        assert shipped == "0" and used["0"] < 0.75 * used["2"]
