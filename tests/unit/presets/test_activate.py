"""`guest/presets/activate.py`, with a preset of the test's own."""
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from guest.presets import activate


@pytest.fixture
def guest(tmp_path, monkeypatch):
    """A directory that stands for a guest with the preset `pi`, and how often it was asked."""
    for name, below in (("ROOT", "presets"), ("BIN", "bin"), ("STATE_DIR", "state"),
                        ("LOG_DIR", "log"), ("HOME", "home"), ("SHIM", "shim")):
        (tmp_path / below).mkdir()
        monkeypatch.setattr(activate, name, str(tmp_path / below))
    monkeypatch.setattr(activate, "UID", os.getuid())
    monkeypatch.setattr(activate, "LOCK", str(tmp_path / "lock"))
    program = tmp_path / "presets/pi"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho 1.2.3\n")
    program.chmod(0o755)
    entry = {"state": "ready", "version": "1.2.3", "reason": "", "needsNode": False,
             "bins": {"pi": "pi"}}
    (tmp_path / "presets/presets.json").write_text(json.dumps({"presets": {"pi": entry}}))
    return tmp_path


def asked(guest):
    return len((guest / "asked").read_text().splitlines())


def log_of(guest):
    return (guest / "log/preset-pi.log").read_text()


def test_it_links_and_asks_the_programs_and_keeps_the_outcome(guest, capsys):
    assert activate.main("pi", 30) == 0
    assert os.readlink(guest / "bin/pi") == str(guest / "presets/pi")
    assert os.readlink(guest / "bin/node") == str(guest / "shim/node")
    assert json.loads((guest / "state/pi.json").read_text()) == {"version": "1.2.3", "error": ""}
    assert log_of(guest).endswith("\npi 1.2.3 is ready\n")
    assert capsys.readouterr().out == "1.2.3\n"


def test_started_again_it_gives_the_outcome_and_leaves_the_log(guest, capsys):
    """Its caller may have found the outcome between the start and now, and have answered with it;
    the log must not be half of a second one then."""
    activate.main("pi", 30)
    log = log_of(guest)
    (guest / "presets/pi").write_text("#!/bin/sh\nexit 3\n")
    assert activate.main("pi", 30) == 0
    assert log_of(guest) == log and asked(guest) == 1
    assert capsys.readouterr().out == "1.2.3\n1.2.3\n"


def test_of_two_at_once_one_waits_for_the_other_which_asks_the_programs_once(guest):
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: activate.main("pi", 30), range(2))) == [0, 0]
    assert asked(guest) == 1


def test_a_program_of_another_version_fails_the_preset_for_good(guest, capsys):
    (guest / "presets/pi").write_text("#!/bin/sh\necho pi 1.2.4\n")
    assert activate.main("pi", 30) == activate.main("pi", 30) == 1
    error = "pi --version says pi 1.2.4, and 1.2.3 was installed"
    assert json.loads((guest / "state/pi.json").read_text()) == {"version": "", "error": error}
    assert log_of(guest).endswith(f"\n{error}\n")
    assert capsys.readouterr().out == f"{error}\n" * 2


def test_all_presets_at_once_link_node_once_and_what_breaks_one_is_told(guest, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    ready = {"state": "ready", "version": "1.2.3", "reason": "", "needsNode": True,
             "bins": {"pi": "pi"}}
    log = activate.Log(str(guest / "log/all.log"))
    many = {f"agent{number}": ready for number in range(40)}
    activate.activate_all(many, log, time.monotonic() + 30)
    assert os.readlink(guest / "shim/node") == activate.BUN
    with pytest.raises(activate.Failed, match="^broken: KeyError.*$"):
        activate.activate_all({**many, "broken": {"state": "ready"}}, log, time.monotonic() + 30)
    log.close()
