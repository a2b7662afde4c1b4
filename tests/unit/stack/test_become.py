"""What a process does between its start file and its program."""
import dataclasses
import json
import subprocess
import sys

import pytest

from bin.stack.site import ROOT
from bin.stack.supervision.preloading import COMMAND
from bin.stack.supervision.start_files import Start
from config.processes import NODE_CAPABILITIES

NET_RAW, SYS_MODULE = 1 << 13, 1 << 16


@pytest.fixture
def become(tmp_path):
    """Run the line of a start file as the supervisor does."""
    def run(command, **environ):
        start = Start("tried", command, {"PATH": f"{ROOT}/.venv/bin:/usr/bin:/bin", **environ},
                      "root", list(NODE_CAPABILITIES), [])
        path = tmp_path / "tried.json"
        path.write_text(json.dumps(dataclasses.asdict(start)))
        return subprocess.run([sys.executable, *COMMAND, str(path)], cwd=ROOT, text=True,
                              capture_output=True, timeout=60, check=False)
    return run


def test_a_module_runs_with_its_words_and_the_settings_of_the_line(become):
    done = become('env SVC_LANE=ops python -m json.tool --help', SVC_NODE_ID="node-7")
    assert done.returncode == 0 and "json.tool" in done.stdout, done.stderr


def test_a_script_of_the_virtual_environment_runs(become):
    done = become('exec gunicorn --version')
    assert done.returncode == 0 and "gunicorn" in done.stdout, done.stderr


def test_variables_of_the_line_are_settings_and_an_unknown_one_ends_it(become):
    assert become("python -m json.tool $SVC_NODE_ID", SVC_NODE_ID="--help").returncode == 0
    failed = become("python -m json.tool $SVC_NODE_ID")
    assert failed.returncode == 1 and "SVC_NODE_ID" in failed.stderr


def test_what_is_for_a_shell_a_shell_runs(become):
    done = become('export A="a b"; exec printf "%s|%s" "$A" "$SVC_NODE_ID"', SVC_NODE_ID="node-7")
    assert (done.returncode, done.stdout) == (0, "a b|node-7")


@pytest.mark.parametrize(("line", "status"), [
    ("python -m json.tool --help", 0), ("python -m json.tool --unknown", 2),
    ("python -m no_such_module", 1), ("exit 3; true", 3),
])
def test_the_status_of_the_program_is_the_status_of_the_process(become, line, status):
    assert become(line).returncode == status


def test_it_keeps_the_capabilities_of_its_row_and_can_gain_no_other(become):
    shown = become("cat /proc/self/status; true").stdout
    status = dict(line.split(":\t", 1) for line in shown.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    for field in ("CapEff", "CapPrm", "CapBnd"):
        assert int(status[field], 16) & NET_RAW and not int(status[field], 16) & SYS_MODULE
