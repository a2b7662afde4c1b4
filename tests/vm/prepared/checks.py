"""Processes that were started ahead of need, as tests make them and look for what they leave."""
import subprocess

from nodeworker.hypervisor import locks
from nodeworker.hypervisor.qemu.process import making_prepared, prepared_processes
from nodeworker.hypervisor.qemu.rundir import RunDir
from tests.host.driver_lab import SHAPE
from tests.stack.waiting import until


def check_nothing_left(lab):
    """But sandboxes: no process, no slot and no directory of one."""
    host = lab.driver.host
    assert list(host.prepared.glob("prepared-*")) == [] and prepared_processes.count(host) == 0
    assert set(host.network.slots.owners()) <= set(lab.driver.list_sandboxes())
    named = f"{lab.settings.net_prefix}/{prepared_processes.PREFIX}"
    lives = {lab.driver.host.rundir(each).find_record().pid for each in lab.driver.list_sandboxes()}
    assert set(map(int, subprocess.run(["pgrep", "-f", named], capture_output=True,
                                       text=True).stdout.split())) <= lives


def make(lab):
    """The process id of one more that stands ready, and its directory."""
    host = lab.driver.host
    known = set(host.prepared.glob("prepared-*"))
    making_prepared.prepare(host, host.find_warm_image(SHAPE))
    [path] = set(host.prepared.glob("prepared-*")) - known
    [pid] = [ready["pid"] for rundir, ready in prepared_processes._list_ready(host)
             if rundir.path == path]
    # A process that another thread has forked holds it until its program starts.
    until(lambda: not locks.is_locked(path / "op.lock"), 20)
    return pid, RunDir(path)
