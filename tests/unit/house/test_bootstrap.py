"""What makes a machine ready: of packages that would be good to have apt is asked once, and may say
no; a virtual environment that was broken off in the making is made anew."""
import os
import signal
import subprocess
import sys

import pytest

from bin import bootstrap
from bin.console import Advice


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """What apt is asked to do; it has no package of that name."""
    asked = []

    def apt(arguments, environ):
        asked.append(arguments)
        if arguments[0] == "install":
            raise Advice("unable to locate package")
    monkeypatch.setattr(bootstrap, "_apt", apt)
    monkeypatch.setattr(bootstrap, "OPTIONAL", {"no-such-module": str(tmp_path / "sign")})
    monkeypatch.setattr(bootstrap, "ASKED", tmp_path / "asked")
    return asked


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
def test_a_package_that_a_system_has_not_is_asked_for_once_and_harms_nothing(runs, capsys):
    bootstrap.install_optional()
    bootstrap.install_optional()
    assert [each[0] for each in runs] == ["update", "install"] and "--no-remove" in runs[1]
    assert "slower without no-such-module" in capsys.readouterr().out


def test_one_that_is_there_is_not_asked_for(runs, tmp_path):
    (tmp_path / "sign").touch()
    bootstrap.install_optional()
    assert runs == []


# Gets ready a machine that lacks a package, with a policy of its own, and does to itself what the
# test says while apt is at work.
HELD_BACK = """
import os, sys
from pathlib import Path
from bin import bootstrap
bootstrap.ROOT = Path(sys.argv[1])
bootstrap.POLICY = bootstrap.ROOT / "policy"
bootstrap.missing_packages = lambda: ["no-such-package"]
bootstrap._apt = lambda *arguments: os.kill(os.getpid(), int(sys.argv[2]))
bootstrap.main([])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
@pytest.mark.parametrize(("signum", "stays"), [(signal.SIGHUP, False), (signal.SIGTERM, False),
                                               (signal.SIGKILL, True)])
def test_services_are_not_held_back_for_ever(monkeypatch, tmp_path, signum, stays):
    policy = tmp_path / "policy"
    subprocess.run([sys.executable, "-c", HELD_BACK, tmp_path, str(int(signum))],
                   cwd=bootstrap.ROOT, capture_output=True, check=False)
    assert policy.exists() is stays
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "POLICY", policy)
    monkeypatch.setattr(bootstrap, "make_venv", lambda: None)
    bootstrap.main(["python"])
    assert not policy.exists(), "the next run removes what a killed one left"
    policy.write_text("#!/bin/sh\nexit 101\n")
    bootstrap.main(["python"])
    assert policy.exists(), "it is somebody else's"


def test_an_environment_that_was_broken_off_is_made_anew(monkeypatch, tmp_path):
    made = []

    def venv(command, what):
        made.append(what)
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / "pip").write_text(f"#!{tmp_path}/bin/python3\n")

    def broken_off(pins):
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "_quietly", venv)
    monkeypatch.setattr(bootstrap, "_same_python", lambda: True)
    monkeypatch.setattr(bootstrap, "_install_wheels", broken_off)
    with pytest.raises(KeyboardInterrupt):
        bootstrap.make_venv()
    monkeypatch.setattr(bootstrap, "_install_wheels", lambda pins: None)
    for _ in range(2):
        bootstrap.make_venv()
    assert made == ["making the virtual environment"] * 2
    (tmp_path / ".pinned").write_text("other pins")
    bootstrap.make_venv()
    assert len(made) == 2, "what was whole is brought up to date"
    (tmp_path / "bin" / "pip").write_text("#!/elsewhere/.venv/bin/python3\n")
    bootstrap.make_venv()
    assert len(made) == 3, "its checkout was moved here"
