"""Machines that stand ready for creates, as tests make and take them and look for what is left."""
import os
import signal
import subprocess
import sys

from bin.stack.site import ROOT
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.hypervisor.qemu.suspended import making_spares
from tests.host.driver_checks import check_clock, check_is_itself, points
from tests.host.driver_lab import SHAPE
from tests.stack.waiting import until

TAKING = ("spare.taken", "spare.handed_over", "spare.exchanged")
MAKING = tuple(point for point in points("spare") if point not in TAKING)
IDENTITY = (
    "cat /etc/machine-id /etc/hostname /etc/ssh/ssh_host_ed25519_key.pub; head -c 16 /dev/urandom |"
    " sha256sum"
)
_MAKE = """
import os, sys
from config.settings import load
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.suspended.making_spares import make
from tests.host.driver_checks import listen_longer
listen_longer(setattr)
make(Host(load(os.environ)), sys.argv[1])
"""


def check_nothing_left(lab):
    """But sandboxes: no spare, no slot, no cgroup, no layer of one and no note of who has some."""
    host = lab.driver.host
    sandboxes = set(lab.driver.list_sandboxes())
    assert {path.name: sorted(os.listdir(path)) for path in host.warm.glob("spare-*")} == {}
    assert set(host.network.slots.owners()) <= sandboxes and host.cgroups.names() <= sandboxes
    assert set(host.layers.list_paths()) <= host.find_references()
    assert list(lab.settings.node_dir.glob("layers/holders/*/warm.*")) == []


def image(lab):
    return lab.driver.host.warm_image_dir(SHAPE).name


def make(lab, source=None):
    """The run directory of a new spare, of the warm image if of nothing else."""
    known = set(lab.driver.host.warm.glob("spare-*"))
    making_spares.make(lab.driver.host, source or image(lab))
    [path] = set(lab.driver.host.warm.glob("spare-*")) - known
    # A process that another thread has forked holds it until its program starts; a create that
    # meets that makes a machine of its own.
    until(lambda: not locks.is_locked(path / "op.lock"), 20)
    return RunDir(path)


def crash_making(lab, tmp_path, point, source=None):
    """Make a spare in a process that is killed at a point."""
    fault = tmp_path / "fault"
    fault.write_text(f"{point} kill")
    environ = {**os.environ, **lab.environ, "SVC_FAULT_FILE": str(fault)}
    done = subprocess.run([sys.executable, "-c", _MAKE, source or image(lab)], cwd=ROOT,
                          env=environ, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL and not fault.exists()


def check_runs(lab, spec):
    check_is_itself(lab, spec)
    check_clock(lab.shell, spec)
