"""Worker processes for crash tests: each carries out one driver call, in a fork of a process that
has imported the driver. A fork takes 3 to 6 ms, that import 100 to 150."""
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from bin.stack.site import ROOT
from config.settings import load
from nodeworker.hypervisor.driver import Driver, MachineSpec, RunningVm, StillStarting
from nodeworker.hypervisor.factory import make_driver

_forks = multiprocessing.get_context("forkserver")
# A fork imports the program of this process as well, which is pytest where it has no workers.
_forks.set_forkserver_preload([__name__, "pytest"])


def patient(driver: Driver) -> Driver:
    """`driver` whose create and wake are repeated, as a node worker repeats them, until the guest
    has answered."""

    def repeated(call: Callable[[MachineSpec], RunningVm]) -> Callable[[MachineSpec], RunningVm]:
        def until_answered(spec: MachineSpec) -> RunningVm:
            while True:
                try:
                    return call(spec)
                except StillStarting as starting:
                    time.sleep(starting.again_in_s)

        return until_answered

    for name in ("create", "wake"):
        setattr(driver, name, repeated(getattr(driver, name)))
    return driver


def run_worker(environ: Mapping[str, str], limit_s: float, operation: str, *arguments: Any) -> int:
    """Exit code of a worker that carries out one driver call (negative: the signal it died of).
    `environ` are its SVC_* variables beside those of this process; what it says of errors is said
    here."""
    with tempfile.NamedTemporaryFile("r") as said:
        worker = _forks.Process(target=_carry_out, args=(
            said.name, {**os.environ, **environ}, operation, arguments))
        worker.start()
        try:
            worker.join(limit_s)
            if worker.exitcode is None:
                raise TimeoutError(f"{operation} takes longer than {limit_s} s")
            return worker.exitcode
        finally:
            worker.kill()  # also if the test is broken off; one that has ended is left alone
            sys.stderr.write(said.read())


def _carry_out(said: str, environ: dict[str, str], operation: str, arguments: tuple[Any, ...]
               ) -> None:
    threading.Thread(target=_end_with_tests, daemon=True).start()
    os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND), 2)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environ)
    getattr(patient(make_driver(load(os.environ))), operation)(*arguments)


def _end_with_tests() -> None:
    """By name nobody would find it: it has the command line and environment of what it is a fork
    of, which lives as long as its forks do."""
    tests = multiprocessing.parent_process()
    assert tests
    tests.join()
    os.kill(os.getpid(), signal.SIGKILL)
