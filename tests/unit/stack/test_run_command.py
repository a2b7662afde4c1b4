"""A command that is broken off may put right what it was at; nothing of it is left."""
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bin.stack.run_command import run_command
from bin.stack.site import ROOT
from tests.stack.waiting import is_alive, until

RUN = """
import os, sys
from bin.console import end_as_by_ctrl_c
from bin.stack.run_command import run_command
end_as_by_ctrl_c()
run_command(sys.argv[1], os.environ, 60, show=True)
"""


def test_what_it_prints_is_kept_to_the_last_byte(capsys):
    said = run_command("printf 'one\\n\\ntwo \\377'; sleep 0.1; printf three >&2", os.environ, 10,
                       show=True)
    assert said == "one\n\ntwo \ufffdthree"
    shown = [line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown == ["one", "", "two \ufffdthree"]


@pytest.mark.parametrize(("at_the_end", "says"), [("touch {0}/tidy; exit 1", True), ("", False)],
                         ids=["tidy", "deaf"])
def test_a_command_that_is_broken_off_has_time_to_tidy_up(tmp_path, at_the_end, says):
    command = f"trap '{at_the_end.format(tmp_path)}' TERM; echo begun;" \
        " while :; do sleep 0.1; done"
    with subprocess.Popen([sys.executable, "-c", RUN, command], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert "begun" in running.stdout.readline(), "it is being read"
        shell = int(Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text())
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) != 0
    assert (tmp_path / "tidy").exists() is says
    until(lambda: not [pid for pid in Path("/proc").glob("[0-9]*") if _is_of(pid, shell)])


def _is_of(process, group):
    with contextlib.suppress(OSError):
        return os.getpgid(int(process.name)) == group and is_alive(int(process.name))
