"""Telling a machine that was halted for good from one that waits, by real CPUs running a few bytes
of real mode."""
import contextlib
import subprocess
import time

import pytest

from nodeworker.hypervisor.qemu.operations.halted import find_halted, is_halted
from nodeworker.hypervisor.qemu.process.qmp import QmpClient, QmpError
from tests.stack.waiting import until

CLI, STI, HLT, AGAIN, FOR_EVER = b"\xfa", b"\xfb", b"\xf4", b"\xeb\xfd", b"\xeb\xfe"
LOOK = {"command-line": "info registers -a"}


def boot_sector(code):
    return code.ljust(510, b"\0") + b"\x55\xaa"


def settles(monitor, wanted, timeout_s=60):
    """Whether the CPUs come to what is wanted, and what they say."""
    deadline = time.monotonic() + timeout_s
    while True:
        told = monitor.run("human-monitor-command", LOOK)
        # The firmware's own code lies elsewhere; a sector begins at 0x7c00.
        if all(text in told for text in ("EIP=00007c0", "HLT=1")) and is_halted(told) is wanted:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def connected(monitor, process):
    """Its file is there a moment before anybody listens."""
    while True:
        assert process.poll() is None
        try:
            return QmpClient(monitor)
        except QmpError:
            time.sleep(0.02)


@contextlib.contextmanager
def machine(folder, code, cpus=1):
    """The monitor of a machine that runs the code."""
    disk, monitor = folder / "disk", folder / "qmp"
    disk.write_bytes(boot_sector(code))
    process = subprocess.Popen([
        "qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "pc,accel=tcg", "-m",
        "16", "-smp",
        str(cpus), "-drive", f"file={disk},format=raw,if=ide", "-qmp",
        f"unix:{monitor},server=on,wait=off"
    ])
    try:
        with connected(monitor, process) as client:
            yield client
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("code", "halted"), [(CLI + HLT + AGAIN, True),
                                              (STI + HLT + AGAIN, False)], ids=["halted", "idle"])
@pytest.mark.parametrize("cpus", [1, 2])
def test_only_a_machine_that_nothing_can_wake_is_halted(tmp_path, code, halted, cpus):
    with machine(tmp_path, code, cpus) as monitor:
        assert settles(monitor, halted)
        places = find_halted(monitor)
        assert len(places) == (cpus if halted else 0)
        assert not halted or any(place.startswith("00007c0") for place in places)


class Woken:
    """A monitor that wakes the CPU after the first look at it."""

    def __init__(self, monitor):
        self._monitor = monitor
        self.looks = 0

    def run(self, command, arguments):
        told = self._monitor.run(command, arguments)
        self.looks += 1
        if self.looks == 1:
            self._monitor.run("inject-nmi")
            until(lambda: "HLT=0" in self._monitor.run("human-monitor-command", LOOK))
        return told


def test_one_look_is_not_enough(tmp_path):
    with machine(tmp_path, CLI + HLT + FOR_EVER) as monitor:
        assert settles(monitor, True)
        woken = Woken(monitor)
        assert find_halted(woken) == []
        assert woken.looks == 2


@pytest.mark.parametrize(("registers", "halted"), [
    ("", False),
    ("RIP=ffff RFL=00000046 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1", True),
    ("RIP=ffff RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1", False),
    ("RIP=ffff RFL=00000046 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0", False),
    ("CPU#0\nRIP=1 RFL=00000246 [-] CPL=0 HLT=1\nCPU#1\nRIP=1 RFL=00000046 [-] CPL=0 HLT=1", False),
    ("CPU#0\nRIP=1 RFL=00000046 [-] CPL=0 HLT=1\nCPU#1\nRIP=1 RFL=00000046 [-] CPL=0 HLT=1", True),
])
def test_what_the_registers_say(registers, halted):
    assert is_halted(registers) is halted


HONEST = "RIP=ffffffff81e0f0ab RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n"


@pytest.mark.parametrize("hostile", ["EFL=0 ", "EIP=0 EFL=0 ", "RFL=0 HLT=", "0", "\n"],
                         ids=["flags", "places", "halts", "digits", "lines"])
def test_what_a_hostile_qemu_sends_takes_no_longer_than_as_much_of_an_honest_one(hostile):
    """Half a megabyte took a worker minutes, in which nothing else was looked at."""
    def cpu_s(text):
        began = time.thread_time()
        is_halted("EIP=0 EFL=" + (text * 50_000)[:50_000])
        return time.thread_time() - began

    assert min(cpu_s(hostile) for _ in range(3)) < 100 * max(cpu_s(HONEST) for _ in range(3))
