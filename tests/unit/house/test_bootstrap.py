"""Packages that would be good to have: apt is asked once, and may say no."""
import os

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
