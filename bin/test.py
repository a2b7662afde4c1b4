"""`make test`: the rooms of tests/ by pytest, and one line with the totals at the end.

1. Where VMs are used, their images are made meanwhile (`bin/vm_test_needs.py`). 2. What does not
disturb each other runs in parallel, one stack for each worker process; and once the images are
there, beside it, some of what boots VMs without a stack. 3. What measures times against each other,
or waits for an idle host, runs after that, alone. 4. The rest of what boots VMs comes last, three
files at a time, first what needs no stack. Each is a run of pytest of its own, so that the stacks
of one do not stand by in the next. The exit code is that of the first run that failed.

`quick` is for who changes code and looks again: what runs in parallel and needs no VM, without the
tests marked `slow`.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from bin.console import Advice, end_as_by_ctrl_c, explained, let_others_read
from bin.pytest_run import NO_TESTS, PytestRun
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
# What boots VMs in the fifth of the CPUs that the first part leaves. It is to end before that does,
# also where the images come late.
BESIDE = tuple(f"tests/vm/{folder}" for folder in ("image", "forks", "kept", "prepared", "spares"))
_Result = tuple[int, Counter[str]]


def runs(rooms: Sequence[str], *, quick: bool) -> list[list[str]]:
    """Arguments of each pytest run, in order."""
    workers = min(MAX_WORKERS, (os.cpu_count() or 1) + 2)
    parallel = [f"tests/{room}" for room in rooms if room in PARALLEL]
    alone = [name for room in rooms if room in ALONE for name in _marked_alone(room)]
    if quick:
        return [[*parallel, "-m", f"{WITHOUT_VMS} and not slow", *_in_parallel(workers)]]
    made = []
    if parallel:
        made.append([*parallel, "-m", WITHOUT_VMS, *_in_parallel(workers)])
    if alone:
        made.append([*alone, "-m", "alone"])
    if with_vms := [f"tests/{room}" for room in rooms if room in WITH_VMS]:
        done = BESIDE if are_beside(rooms) else ()
        made.append([*with_vms, *(f"--ignore={folder}" for folder in done), "-m",
                     "vm and not alone", *_in_parallel(VM_WORKERS)])
    return made


def _marked_alone(room: str) -> list[str]:
    """Files with tests that run alone: pytest would take longer to collect all the others."""
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / room).rglob("*.py"))
            if "mark.alone" in path.read_text()]


def are_beside(rooms: Sequence[str]) -> bool:
    """Whether there is a part of these rooms beside which VMs can be booted."""
    return "vm" in rooms and not set(QUICK).isdisjoint(rooms)


def _in_parallel(workers: int) -> list[str]:
    """The options by which that many processes share the files."""
    return ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]


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


@contextmanager
def beside(needs: "subprocess.Popen[bytes]") -> Iterator["Future[list[_Result]]"]:
    """Run `BESIDE` while the block runs, as soon as `needs` are there, and wait for its end. Its
    output comes then; without what it needs it does not run."""
    run = PytestRun([*BESIDE, "-m", "vm and not alone"])

    def boot_vms() -> list[_Result]:
        return [run.show(kept)] if needs.wait() == 0 else []

    with tempfile.TemporaryFile() as kept, ThreadPoolExecutor(max_workers=1) as thread:
        results = thread.submit(boot_vms)
        try:
            yield results
            if not results.done():
                print(f"Beside it, pytest runs {' '.join(BESIDE)}.", flush=True)
        except BaseException:
            needs.terminate()
            run.end()
            raise
        finally:
            thread.shutdown()
            kept.seek(0)
            shutil.copyfileobj(kept, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def run_all(rooms: Sequence[str], *, quick: bool) -> Iterator[_Result]:
    """Every run in order, shown as it goes: its exit code and its counts."""
    with vm_needs(rooms) as needs:
        for arguments in runs(rooms, quick=quick):
            run = PytestRun(arguments)
            if WITHOUT_VMS not in arguments:
                wait_for(needs)
                yield run.show(sys.stdout.buffer)
            elif needs is None or not are_beside(rooms):
                yield run.show(sys.stdout.buffer)
            else:
                with beside(needs) as others:
                    result = run.show(sys.stdout.buffer)
                yield from (result, *others.result())


def main(words: Sequence[str]) -> int:
    """Run the rooms named (all, if none is; `quick` for those without VMs) and return the exit
    code."""
    quick = list(words) == ["quick"]
    rooms = QUICK if quick else tuple(words) or (*PARALLEL, "vm", "browser")
    end_as_by_ctrl_c()
    let_others_read()
    with explained():
        shutil.rmtree(ROOT / "var" / "evidence", ignore_errors=True)
        try:
            results = list(run_all(rooms, quick=quick))
        finally:
            remove_abandoned()
    totals = sum((counted for _, counted in results), Counter[str]())
    print(f"{totals['passed']} passed, {totals['failed'] + totals['error']} failed", flush=True)
    found = [code for code, _ in results if code != NO_TESTS]
    return next(filter(None, found), 0 if found else NO_TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
