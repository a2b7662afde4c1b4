"""How fast this host's time stamp counter runs, measured once per boot of the host.

Under emulation the guest's counter ticks at the host's rate. A guest that has to calibrate it on a
busy host may give up and fall back to a clock that drifts and wakes it 250 times a second for ever,
so the rate is passed to its kernel. A saved guest keeps counting at the rate it learnt, so the rate
is part of the host tuple.
"""
import ctypes
import mmap
import time
from pathlib import Path

from nodeworker.disks.durable import read_json, write_json
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.qemu.rundir import boot_id

# rdtsc; shl rdx, 32; or rax, rdx; ret
_READ_COUNTER = bytes.fromhex("0f31" "48c1e220" "4809d0" "c3")
_MEASURE_S = 0.2
_SAME_WITHIN = 0.001


def counter_khz(image_dir: Path) -> int:
    """The rate in kHz; one that differs from an earlier boot's by measuring noise only is given as
    it was then."""
    cache = image_dir / "tsc.json"
    with locks.hold(image_dir / "tsc.lock"):
        known = read_json(cache)
        if known is None or known["boot_id"] != boot_id():
            rate = measure_khz()
            if known is not None and abs(rate - known["khz"]) < rate * _SAME_WITHIN:
                rate = int(known["khz"])
            known = {"boot_id": boot_id(), "khz": rate}
            write_json(cache, known)
    return int(known["khz"])


def measure_khz() -> int:
    """Count for a fifth of a second against the kernel's undisciplined clock."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(_READ_COUNTER)
    read_counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(
        ctypes.addressof(ctypes.c_char.from_buffer(memory))
    )

    def sample() -> tuple[int, int]:
        """Time and counter at one instant: the tightest of twenty tries."""
        tries = []
        for _ in range(20):
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            counter = read_counter()
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            tries.append((after - before, (before + after) // 2, counter))
        return min(tries)[1:]

    began = sample()
    time.sleep(_MEASURE_S)
    ended = sample()
    return round((ended[1] - began[1]) * 1_000_000 / (ended[0] - began[0]))
