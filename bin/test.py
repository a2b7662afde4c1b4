"""`make test`: the rooms of tests/ by pytest, and one line with the totals at the end.

1. The guest image is made where VMs are used. 2. What does not disturb each other runs in parallel,
one stack for each worker process. 3. What measures times against each other, or waits for an idle
host, runs after that, alone. 4. What boots VMs comes last, three files at a time, first what needs
no stack. Each is a run of pytest of its own, so that the stacks of one do not stand by in the next.
The exit code is that of the first run that failed.

`quick` is for who changes code and looks again: what runs in parallel and needs no VM, without the
tests marked `slow`.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from types import FrameType

from bin.bootstrap import install_browser
from bin.console import explained
from bin.image import ensure_images
from bin.stack.running import remove_abandoned
from bin.stack.site import ROOT

QUICK = ("unit", "functional", "contract")
PARALLEL = (*QUICK, "chaos")
ALONE = ("functional", "contract", "vm", "browser", "chaos")
WITH_VMS = ("vm", "browser", "chaos")
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
        return [[*beside, "-m", "not alone and not vm and not slow", *_in_parallel(workers)]]
    made = []
    if beside:
        made.append([*beside, "-m", "not alone and not vm", *_in_parallel(workers)])
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


def interrupt(signum: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that the stacks are ended too."""
    raise KeyboardInterrupt


def main(words: Sequence[str]) -> int:
    """Run the rooms named (all, if none is; `quick` for those without VMs) and return the exit
    code."""
    quick = list(words) == ["quick"]
    rooms = QUICK if quick else tuple(words) or (*PARALLEL, "vm", "browser")
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # nohup
            signal.signal(signum, interrupt)
    with explained():
        if set(WITH_VMS) & set(rooms) or (not quick and "contract" in rooms):
            ensure_images()
        if "browser" in rooms:
            install_browser()
        shutil.rmtree(ROOT / "var" / "evidence", ignore_errors=True)
        codes, totals = [], Counter[str]()
        try:
            for arguments in runs(rooms, quick=quick):
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
