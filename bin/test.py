"""`make test`: the rooms of tests/ by pytest, and one line with the totals at the end.

1. Where VMs are used, their images are made meanwhile (`bin/vm_test_needs.py`). 2. What does not
disturb each other runs in parallel, one stack for each worker process. 3. What measures times
against each other, or waits for an idle host, runs after that, alone. 4. What boots VMs comes last,
three files at a time, first what needs no stack. Each is a run of pytest of its own, so that the
stacks of one do not stand by in the next. The exit code is that of the first run that failed.

`quick` is for who changes code and looks again: what runs in parallel and needs no VM, without the
tests marked `slow`.
"""
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bin.console import Advice, end_as_by_ctrl_c, explained
from bin.stack.running import remove_abandoned
from bin.stack.site import ROOT

QUICK = ("unit", "functional", "contract")
PARALLEL = (*QUICK, "chaos")
ALONE = ("functional", "contract", "vm", "browser", "chaos")
WITH_VMS = ("vm", "browser", "chaos")
WITHOUT_VMS = "not alone and not vm"
# Two thirds of the time of a worker are waited for, so there are two more than there are cores.
# More gain nothing: the longest files stay.
MAX_WORKERS = 4
# Guests take the CPU; but two leave a fifth of two cores idle, and three a tenth at most.
VM_WORKERS = 3
NO_TESTS = 5
COUNT = re.compile(r"(\d+) (passed|failed|error)")


def runs(rooms: Sequence[str], *, quick: bool) -> list[list[str]]:
    """Arguments of each pytest run, in order."""
    workers = min(MAX_WORKERS, (os.cpu_count() or 1) + 2)
    beside = [f"tests/{room}" for room in rooms if room in PARALLEL]
    alone = [f"tests/{room}" for room in rooms if room in ALONE]
    if quick:
        return [[*beside, "-m", f"{WITHOUT_VMS} and not slow", *_in_parallel(workers)]]
    made = []
    if beside:
        made.append([*beside, "-m", WITHOUT_VMS, *_in_parallel(workers)])
    if alone:
        made.append([*alone, "-m", "alone"])
    if with_vms := [f"tests/{room}" for room in rooms if room in WITH_VMS]:
        made.append([*with_vms, "-m", "vm and not alone", *_in_parallel(VM_WORKERS)])
    return made


def _in_parallel(workers: int) -> list[str]:
    """The options by which that many processes share the files."""
    return ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]


def pytest(arguments: Sequence[str]) -> tuple[int, Counter[str]]:
    """One run, shown as it goes: its exit code and what its last line counts."""
    command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "--durations=30", *arguments,
               *os.environ.get("PYTEST_ARGUMENTS", "").split()]
    shown = b""
    with subprocess.Popen(command, cwd=ROOT, env=_environ(), stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            while piece := os.read(process.stdout.fileno(), 65536):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
                shown = (shown + piece)[-10_000:]
        except BaseException:
            process.terminate()  # its fixtures end what they started
            process.wait()
            raise
    ends = [line for line in shown.decode(errors="replace").splitlines() if COUNT.search(line)]
    last = ends[-1] if ends else ""
    counted = Counter({word: int(count) for count, word in COUNT.findall(last)})
    if process.returncode not in (0, NO_TESTS) and not counted["failed"] + counted["error"]:
        counted["error"] = 1  # it broke off
    return process.returncode, counted


def _environ() -> dict[str, str]:
    """This environment, with compiled modules kept under var/, whatever it says of them: else each
    process of each run would compile all the tests anew, which takes longer than to collect
    them."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(ROOT / "var" / "compiled")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ


@contextmanager
def vm_needs(rooms: Sequence[str]) -> Iterator["subprocess.Popen[bytes] | None"]:
    """What makes ready what the VMs of these rooms need, if they have any, in the block; it is
    ended with it."""
    if not set(WITH_VMS) & set(rooms):
        yield None
        return
    command = [str(ROOT / ".venv/bin/python"), "-m", "bin.vm_test_needs"]
    if "browser" in rooms:
        command.append("browser")
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for(needs: "subprocess.Popen[bytes] | None") -> None:
    """Return once VMs can be started; raises Advice if they cannot."""
    if needs is not None and needs.wait() != 0:
        raise Advice("without an image no virtual machine can be tested; above is what it lacks")


def main(words: Sequence[str]) -> int:
    """Run the rooms named (all, if none is; `quick` for those without VMs) and return the exit
    code."""
    quick = list(words) == ["quick"]
    rooms = QUICK if quick else tuple(words) or (*PARALLEL, "vm", "browser")
    end_as_by_ctrl_c()
    with explained():
        shutil.rmtree(ROOT / "var" / "evidence", ignore_errors=True)
        codes, totals = [], Counter[str]()
        try:
            with vm_needs(rooms) as needs:
                for arguments in runs(rooms, quick=quick):
                    if WITHOUT_VMS not in arguments:
                        wait_for(needs)
                    code, counted = pytest(arguments)
                    codes.append(code)
                    totals += counted
        finally:
            remove_abandoned()
    print(f"{totals['passed']} passed, {totals['failed'] + totals['error']} failed", flush=True)
    found = [code for code in codes if code != NO_TESTS]
    return next(filter(None, found), 0 if found else NO_TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
