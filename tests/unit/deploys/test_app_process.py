"""How an app is started and frozen in its guest, and how long its log becomes: the scripts, run
here."""
import subprocess
import time
from types import SimpleNamespace

import pytest

from nodeworker.deploys import app_process
from services.deploys.apps.process_facts import LOG

MOST = 1000


@pytest.fixture
def folder(tmp_path):
    """A folder of the scripts, with a log of at most MOST bytes; in it the app's directory."""
    logger = app_process.LOGGER_TEXT.replace(LOG, str(tmp_path / "said"))
    (tmp_path / "log").write_text(logger.replace(str(app_process.LOG_BYTES_MOST), str(MOST)))
    (tmp_path / "it's $here").mkdir()
    return tmp_path


def run(folder, line, **env):
    text = app_process.run_text(f"{folder}/it's $here", line, env)
    script = folder / "run"
    script.write_text(text.replace(app_process.FOLDER, str(folder)))
    subprocess.run(["/bin/bash", str(script)], check=True, timeout=20)
    # Its logger, under whatever name: for a moment it is a shell that runs the script.
    subprocess.run(["sh", "-c", 'while pgrep -f "sh $0/" >/dev/null; do sleep 0.05; done',
                    str(folder)], check=True, timeout=20)
    return (folder / "said").read_text()


def test_it_runs_in_its_directory_with_its_variables_and_all_it_says_is_kept(folder):
    said = run(folder, 'pwd; echo "$PORT $A"; echo wrong >&2', PORT="3000", A="'\"$(x)\n\\")
    assert said == f"{folder}/it's $here\n3000 '\"$(x)\n\\\nwrong\n"


def test_it_goes_on_with_the_log_of_the_time_before(folder):
    run(folder, "echo one")
    assert run(folder, "echo two") == "one\ntwo\n"


@pytest.mark.skipif(condition="GNU" not in subprocess.getoutput("head --version"),
                    reason="guests have GNU's head, this host has another")
def test_of_a_long_log_the_last_part_is_kept(folder):
    assert len(run(folder, "seq 1 5000")) < MOST
    assert (folder / "said.1").stat().st_size == MOST
    assert (folder / "said").read_text().endswith("4999\n5000\n")
    run(folder, "seq 1 5000")
    assert sorted(path.name for path in folder.glob("said*")) == ["said", "said.1"]


@pytest.fixture
def guest(tmp_path):
    """An agent of a guest in which the app runs; `is_frozen` tells whether it stands."""
    group = tmp_path / "group"
    group.mkdir()
    (group / "cgroup.freeze").write_text("0\n")
    (group / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "systemctl").chmod(0o755)

    def execute(argv, **_):
        script = argv[-1].replace(app_process._GROUP, str(group))
        script = script.replace(app_process._TIMER, str(tmp_path / "timer"))
        done = subprocess.run([*argv[:-1], script], timeout=20, capture_output=True,
                              env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
        return SimpleNamespace(timed_out=False, exit_code=done.returncode, stderr=done.stderr)

    return SimpleNamespace(exec=execute,
                           is_frozen=lambda: (group / "cgroup.freeze").read_text() == "1\n")


@pytest.mark.parametrize("kept", [False, True])
def test_a_frozen_app_goes_on_by_itself_unless_it_is_kept_frozen(guest, kept):
    app_process.freeze(guest, 1)
    if kept:
        app_process.keep_frozen(guest)
        app_process.keep_frozen(guest)
    assert guest.is_frozen()
    time.sleep(1.5)
    assert guest.is_frozen() is kept
    app_process.thaw(guest)
    assert not guest.is_frozen()
