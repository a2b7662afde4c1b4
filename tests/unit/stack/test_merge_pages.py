"""The plug-in of supervisord that has the kernel look for equal pages: when it switches that on and
off again, and of which memory it is told."""
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bin.stack.running import Stack
from bin.stack.site import DEVELOPMENT, ROOT, Site
from bin.stack.supervision import merge_pages, supervisord_conf

PERIOD = merge_pages._MINUTES
# Two forks of a process that has marked its memory wait, and so does a program.
MARKED = """
import os, signal, subprocess
from bin.stack.supervision import merge_pages
merge_pages.mark()
for _ in range(2):
    if os.fork() == 0:
        signal.pause()
print(os.getpid(), flush=True)
subprocess.run(["sleep", "1000"])
"""


@pytest.fixture
def kernel(tmp_path):
    """What a kernel that searches for nothing shows."""
    directory = tmp_path / "ksm"
    directory.mkdir()
    (directory / "run").write_text("0\n")
    (directory / "full_scans").write_text("7\n")
    (directory / "pages_to_scan").write_text("100\n")
    return directory


@pytest.fixture
def made(kernel, tmp_path):
    """Makes plug-ins of one host; each is told here that its supervisord ended."""
    plugins = []

    def make():
        plugins.append(merge_pages.Merging(kernel, tmp_path / "search"))
        return plugins[-1]

    yield make
    for plugin in plugins:
        plugin.end()


def after(plugin, minutes):
    for _ in range(minutes):
        plugin.minute()


def switch(kernel):
    return (kernel / "run").read_text().strip()


def pace(kernel):
    return (kernel / "pages_to_scan").read_text().strip()


def scan(kernel, times):
    scans = kernel / "full_scans"
    scans.write_text(f"{int(scans.read_text()) + times}\n")


def killed(plugin):
    """Its supervisord has died: the lock is gone, and nothing was put back."""
    os.close(plugin._lock)
    plugin._lock = None


def test_it_has_the_kernel_search_a_while_after_the_start_until_it_has_seen_all(kernel, made):
    plugin = made()
    after(plugin, 1)
    assert switch(kernel) == "0"
    after(plugin, 1)
    assert switch(kernel) == "1" and pace(kernel) == "1000"
    scan(kernel, merge_pages._SCANS - 1)
    after(plugin, 1)
    assert switch(kernel) == "1"
    scan(kernel, 1)
    after(plugin, 1)
    assert switch(kernel) == "0" and pace(kernel) == "100"


def test_and_again_every_two_hours(kernel, made):
    plugin, begun = made(), []
    for minute in range(1, 3 * PERIOD):
        scan(kernel, merge_pages._SCANS)
        before = switch(kernel)
        after(plugin, 1)
        if (before, switch(kernel)) == ("0", "1"):
            begun.append(minute)
    assert begun == [2, 2 + PERIOD, 2 + 2 * PERIOD]


def test_a_search_that_takes_too_long_is_ended(kernel, made):
    plugin = made()
    after(plugin, 2 + merge_pages._LONGEST_MINUTES)
    assert switch(kernel) == "0"


def test_it_ends_with_supervisord(kernel, made):
    plugin = made()
    after(plugin, 2)
    plugin.end()
    assert switch(kernel) == "0" and pace(kernel) == "100"


@pytest.mark.parametrize("state", ["1", "2"])
def test_what_somebody_else_has_switched_is_left_alone(kernel, made, state):
    (kernel / "run").write_text(f"{state}\n")
    plugin = made()
    after(plugin, 2 * PERIOD)
    plugin.end()
    assert switch(kernel) == state


def test_what_somebody_else_switches_off_meanwhile_stays_off(kernel, made):
    plugin = made()
    after(plugin, 2)
    (kernel / "run").write_text("2\n")
    scan(kernel, merge_pages._SCANS)
    after(plugin, 10)
    assert switch(kernel) == "2" and pace(kernel) == "100"


def test_another_pace_that_somebody_else_sets_meanwhile_stays(kernel, made):
    plugin = made()
    after(plugin, 2)
    (kernel / "pages_to_scan").write_text("250\n")
    plugin.end()
    assert switch(kernel) == "0" and pace(kernel) == "250"


def test_a_search_left_behind_by_a_killed_supervisord_is_ended_by_the_next(kernel, made):
    first = made()
    after(first, 2)
    killed(first)
    second = made()
    after(second, 1)
    scan(kernel, merge_pages._SCANS)
    after(second, 1)
    assert switch(kernel) == "0" and pace(kernel) == "100"
    (kernel / "run").write_text("1\n")  # from here on it is somebody's
    after(second, 2 * PERIOD)
    second.end()
    assert switch(kernel) == "1"


def test_one_that_dies_before_it_switches_on_loses_no_pace(kernel, made, tmp_path):
    (tmp_path / "search").write_text("100\n")
    (kernel / "pages_to_scan").write_text("1000\n")
    plugin = made()
    after(plugin, 2)
    assert switch(kernel) == "1"
    plugin.end()
    assert switch(kernel) == "0" and pace(kernel) == "100"


def test_of_two_on_one_host_one_looks_after_a_search(kernel, made):
    first, second = made(), made()
    after(first, 2)
    after(second, 2)
    second.end()
    assert switch(kernel) == "1"
    scan(kernel, merge_pages._SCANS)
    after(first, 1)
    assert switch(kernel) == "0"


def test_one_left_behind_where_no_supervisord_comes_is_ended_by_who_removes_the_stack(
        kernel, made, tmp_path):
    plugin = made()
    after(plugin, 2)
    made().end_abandoned()
    assert switch(kernel) == "1", "its supervisord lives"
    killed(plugin)
    made().end_abandoned()
    assert switch(kernel) == "0" and pace(kernel) == "100"
    assert (tmp_path / "search").read_bytes() == b""
    (kernel / "run").write_text("1\n")  # from here on it is somebody's
    made().end_abandoned()
    assert switch(kernel) == "1"


def test_so_does_the_stack_that_is_removed(kernel, made, tmp_path, monkeypatch):
    plugin, ours = made(), made()
    after(plugin, 2)
    killed(plugin)
    monkeypatch.setattr(merge_pages, "Merging", lambda: ours)
    Stack(Site.existing(tmp_path / "var")).destroy()
    assert switch(kernel) == "0" and pace(kernel) == "100"


def test_without_such_a_kernel_it_does_nothing(tmp_path):
    plugin = merge_pages.Merging(tmp_path / "none", tmp_path / "search")
    after(plugin, 2 * PERIOD)
    plugin.end()
    plugin.end_abandoned()


def test_a_kernel_that_does_not_tell_its_scans_is_left_alone(kernel, made, tmp_path):
    (kernel / "full_scans").write_text("nonsense\n")
    after(made(), 2)
    assert switch(kernel) == "0" and (tmp_path / "search").read_bytes() == b""


def test_only_the_stack_of_make_up_has_it(tmp_path):
    development, private = Site(DEVELOPMENT, {}), Site(tmp_path, {})
    assert "merge_pages:install" in supervisord_conf.configuration(development, [])
    assert "merge_pages:install" not in supervisord_conf.configuration(private, [])


@pytest.fixture
def marked():
    """A process that has marked its memory, with two forks and a program that it has started."""
    process = subprocess.Popen([sys.executable, "-c", MARKED], cwd=ROOT, stdout=subprocess.PIPE,
                               start_new_session=True)
    assert process.stdout
    parent = int(process.stdout.readline())
    children = Path(f"/proc/{parent}/task/{parent}/children")
    while len(children.read_text().split()) < 3:
        time.sleep(0.01)
    yield [parent, *map(int, children.read_text().split())]
    os.killpg(process.pid, 9)
    process.stdout.close()
    process.wait()


def is_marked(pid):
    """Whether any memory of the process may be merged."""
    lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    return any(" mg" in line for line in lines if line.startswith("VmFlags"))


@pytest.mark.skipif(not merge_pages.KERNEL.exists(), reason="this kernel does not merge pages")
def test_memory_is_marked_in_forks_too_and_not_in_programs_that_they_start(marked):
    *forked, program = marked
    while "sleep" not in Path(f"/proc/{program}/comm").read_text():
        time.sleep(0.01)
    assert [is_marked(pid) for pid in forked] == [True] * 3
    assert not is_marked(program)
