"""Namespaces under another program's hands, in a mount namespace of the test's own."""
import subprocess
import sys

import pytest

from bin.stack.site import ROOT

# /run is an empty file system of this test, so that nothing of the host is seen or changed.
OWN_RUN = ["unshare", "--mount", "--propagation", "private", "sh", "-ec",
           "mount -t tmpfs tmpfs /run && exec \"$@\"", "sh", sys.executable, "-c"]
BEGIN = """
import os, subprocess
from pathlib import Path
from nodeworker.network import namespaces
def ip(line):
    subprocess.run(["ip", *line.split()], check=True)
namespaces.create_namespace("svct-1")
"""
MOUNTED_OVER = BEGIN + """
ip("netns add other")
# here
namespaces.create_namespace("svct-2")
namespaces.in_namespace("svct-1", lambda: None)
for name in ("svct-1", "svct-2"):
    namespaces.delete_namespace(name)
"""


def run(script):
    done = subprocess.run([*OWN_RUN, script], cwd=ROOT, text=True, capture_output=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("times", [1, 2])
def test_names_made_before_the_directory_was_mounted_over_are_removed(times):
    again = "subprocess.run(['mount', '--rbind', '/run/netns', '/run/netns'], check=True)\n" * (
        times - 1)
    run(MOUNTED_OVER.replace("# here\n", again) + """
assert os.listdir("/run/netns") == ["other"]
mounts = Path("/proc/self/mountinfo").read_text()
assert "svct" not in mounts, "a hidden mount still holds the namespace"
""")


def test_the_names_of_others_stay_and_ours_can_be_made_again():
    run(MOUNTED_OVER + """
namespaces.in_namespace("other", lambda: ip("link show lo"))
ip("-n other link show lo")
namespaces.create_namespace("svct-1")
namespaces.in_namespace("svct-1", lambda: ip("link show lo"))
namespaces.delete_namespace("svct-1")
assert os.listdir("/run/netns") == ["other"]
""")


def test_the_workers_own_view_of_the_mounts_is_not_changed():
    run(BEGIN + """
ip("netns add other")
def mounts():
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in mounts if "svct" not in line]
before = mounts()
namespaces.delete_namespace("svct-1")
assert mounts() == before
""")


def test_a_leftover_file_without_a_namespace_is_removed():
    run("""
from pathlib import Path
from nodeworker.network import namespaces
Path("/run/netns").mkdir()
Path("/run/netns/svct-1").touch()
assert namespaces.list_namespaces("svct") == ["svct-1"]
assert not namespaces.namespace_exists("svct-1")
namespaces.delete_namespace("svct-1")
namespaces.delete_namespace("svct-1")
assert namespaces.list_namespaces("svct") == []
""")
